//! The loop of a sandbox's task.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::start::SandboxTask;
use crate::lifecycle::{self, Verdict};
use crate::machine::Live;
use crate::model::{EndReason, SandboxInfo, State};
use crate::sandbox::Command;

/// How far the machine's own deadline may lag behind while a sandbox with an idle limit is in use.
pub(super) const REFRESH: Duration = Duration::from_secs(10);
const FAR_AWAY: Duration = Duration::from_secs(86_400);

impl SandboxTask {
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        self.plug_in().await;
        self.tell_authority();
        loop {
            let (live, network) = (self.live.clone(), self.network.clone());
            let over = self.time_left();
            self.set_deadline(over.as_ref().map(|(left, _)| *left));
            let pause = match over {
                Some((Duration::ZERO, EndReason::Ttl)) if self.hibernates_at_the_end() => {
                    self.hibernate_instead_of_ending().await;
                    continue;
                }
                Some((Duration::ZERO, reason)) => return self.finish(reason).await,
                Some((left, _)) => left.min(REFRESH),
                None => FAR_AWAY,
            };
            let idle = self.hibernates_in();
            if idle == Some(Duration::ZERO) {
                self.hibernate_if_quiet().await;
                continue;
            }
            let pause = idle.map_or(pause, |idle| pause.min(idle));
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => if self.carry_out(command).await { return },
                    None => return self.finish(EndReason::EngineClosed).await,
                },
                Some(told) = self.notices.next() => self.told(told),
                () = network.authority_wanted() => self.tell_authority(),
                why = lost(live.as_deref()) => return self.finish(EndReason::GuestDied(why)).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Carries out a command. Returns whether the task is over.
    async fn carry_out(&mut self, command: Command) -> bool {
        match command {
            Command::SetLifetime { change, answer } => {
                let lifetime = self.info.lifetime.changed(change);
                let _ = answer.send(self.commit(SandboxInfo { lifetime, ..self.info.clone() }));
                false
            }
            Command::SetNetwork { change, answer } => {
                match self.change_network(change) {
                    Ok(granted) => self.tell_granted(granted, answer),
                    Err(error) => drop(answer.send(Err(error.into()))),
                }
                false
            }
            Command::Freeze { name, visibility, mark, volumes, answer } => {
                // If the caller has gone, the copy of the machine is dropped, and ends.
                let _ = answer.send(self.freeze(name, visibility, mark, volumes).await);
                false
            }
            Command::CopyVolume { from, to, answer } => {
                let _ = answer.send(self.copy_volume(&from, &to).await);
                false
            }
            Command::Saved { snapshot, checkpoint, spared, answer } => {
                let mut info = self.info.clone();
                if let Some(checkpoint) = checkpoint {
                    info.timeline.add(checkpoint, spared);
                }
                info.standing.saved = Some(snapshot);
                let _ = answer.send(self.commit(info));
                false
            }
            Command::Rewind { to, answer } => {
                // The caller may have gone; the change stands.
                let _ = answer.send(self.rewind(&to).await);
                false
            }
            Command::Folded { layers, answer } => {
                let mut info = self.info.clone();
                info.standing.disk.retain(|layer| !layers.contains(layer));
                self.note(info);
                let _ = answer.send(());
                false
            }
            Command::NameCheckpoint { which, name, answer } => {
                let _ = answer.send(self.name_checkpoint(&which, name));
                false
            }
            Command::LetGo => {
                self.unplug();
                true
            }
            Command::Change { request, reason, answer } => {
                let verdict = lifecycle::decide(self.phase.borrow().state(), request);
                let (result, ended) = match verdict {
                    Err(refused) => (Err(refused.into()), false),
                    Ok(Verdict::NothingToDo) => (Ok(()), false),
                    Ok(Verdict::Go(State::Ended)) => match self.end_hibernated(&reason) {
                        Ok(()) => {
                            self.finish(reason).await;
                            (Ok(()), true)
                        }
                        Err(error) => (Err(error.into()), false),
                    },
                    Ok(Verdict::Go(_)) => (self.switch(request).await, false),
                };
                // The caller may have gone; the change stands.
                let _ = answer.send(result);
                ended
            }
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
