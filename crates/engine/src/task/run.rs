//! The loop of a sandbox's task.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::fence::Fenced;
use super::start::SandboxTask;
use crate::lifecycle::{Refused, Request};
use crate::machine::Live;
use crate::model::{EndReason, SandboxInfo};
use crate::sandbox::{Command, Phase};

/// How far the machine's own deadline may lag behind while a sandbox with an idle limit is in use.
pub(super) const REFRESH: Duration = Duration::from_secs(10);
pub(super) const FAR_AWAY: Duration = Duration::from_secs(86_400);

impl SandboxTask {
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        if let Some(live) = self.live() {
            self.plug_in(&live).await;
            self.tell_authority();
        }
        while !matches!(*self.phase.borrow(), Phase::Ended(_)) {
            let (live, network) = (self.live(), self.network.clone());
            let pause = match self.next_due() {
                Some((Duration::ZERO, request)) => {
                    self.change_or_retry(request).await;
                    continue;
                }
                Some((left, _)) => left.min(REFRESH),
                None => FAR_AWAY,
            };
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::LetGo) => return self.unplug(),
                    Some(Command::Abandon { answer }) => return self.abandon(answer).await,
                    Some(Command::SetFence(true)) => {
                        if self.stand_still(&mut inbox).await == Fenced::Left {
                            return;
                        }
                    }
                    Some(Command::Depart { answer }) => {
                        let hibernates = matches!(*self.phase.borrow(), Phase::Hibernated);
                        let refused = Refused::NotHibernated.into();
                        let _ = answer.send(if hibernates { Ok(()) } else { Err(refused) });
                        if hibernates {
                            return self.unplug();
                        }
                    }
                    Some(command) => self.carry_out(command).await,
                    None => return drop(self.change(Request::End(EndReason::EngineClosed)).await),
                },
                why = lost(live.as_deref()) => self.change_or_retry(Request::End(EndReason::GuestDied(why))).await,
                Some(request) = self.stalls.recv() => self.change_or_retry(request).await,
                Some(told) = self.notices.next() => self.told(told),
                () = network.authority_wanted() => self.tell_authority(),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    pub(super) async fn carry_out(&mut self, command: Command) {
        match command {
            Command::SetLifetime { change, answer } => {
                let lifetime = self.info.lifetime.changed(change);
                let _ = answer.send(self.commit(SandboxInfo { lifetime, ..self.info.clone() }));
            }
            Command::SetNetwork { change, answer } => match self.change_network(change) {
                Ok(granted) => self.tell_granted(granted, answer),
                Err(error) => drop(answer.send(Err(error.into()))),
            },
            Command::Freeze { spec, visibility, mark, answer } => {
                // If the caller has gone, the copy of the machine is dropped, and ends.
                let _ = answer.send(self.freeze(spec, visibility, mark).await);
            }
            Command::CopyVolume { from, to, answer } => {
                let _ = answer.send(self.copy_volume(&from, &to).await);
            }
            Command::Saved { snapshot, checkpoint, spared, answer } => {
                let mut info = self.info.clone();
                if let Some(checkpoint) = checkpoint {
                    info.timeline.add(checkpoint, spared);
                }
                info.standing.saved = snapshot.or(info.standing.saved);
                let _ = answer.send(self.commit(info));
            }
            Command::Rewind { to, answer } => {
                // The caller may have gone; the change stands.
                let _ = answer.send(self.rewind(&to).await);
            }
            Command::Folded { layers, answer } => {
                let mut info = self.info.clone();
                info.standing.disk.retain(|layer| !layers.contains(layer));
                self.note(info);
                let _ = answer.send(());
            }
            Command::NameCheckpoint { which, name, answer } => {
                let _ = answer.send(self.name_checkpoint(&which, name));
            }
            // The caller may have gone; the change stands.
            Command::Change { request, answer } => drop(answer.send(self.change(request).await)),
            // The loop has returned, or the machine does not stand still.
            Command::LetGo | Command::Depart { .. } | Command::Abandon { .. } | Command::SetFence(_) => {}
        }
    }
}

/// Waits until the machine has died or its guest is out of reach, and returns why. Without a machine, it waits forever.
async fn lost(live: Option<&Live>) -> String {
    let Some(live) = live else { return std::future::pending().await };
    let (mut died, mut closed) = (live.machine.died(), live.link.closed());
    tokio::select! {
        death = reason(&mut died) => death,
        why = reason(&mut closed) => why,
    }
}

async fn reason<T: ToString>(receiver: &mut watch::Receiver<Option<T>>) -> String {
    let reason = receiver.wait_for(Option::is_some).await;
    reason.ok().and_then(|reason| reason.as_ref().map(ToString::to_string)).unwrap_or_default()
}
