//! A sandbox stands still while another node may have taken it over.

use tokio::sync::{mpsc, oneshot};

use super::run::FAR_AWAY;
use super::start::SandboxTask;
use crate::lifecycle::{Refused, Request};
use crate::machine::end_and_remove;
use crate::sandbox::{Command, Phase};

/// How a sandbox stopped to stand still.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fenced {
    GoesOn,
    /// The task is over.
    Left,
}

impl SandboxTask {
    /// Stops the machine until the sandbox is known to be this node's. Meanwhile it can only end: other changes and saves are
    /// refused, and the rest waits.
    pub(super) async fn stand_still(&mut self, inbox: &mut mpsc::Receiver<Command>) -> Fenced {
        let running = match &*self.phase.borrow() {
            Phase::Running(live) => Some(live.clone()),
            _ => None,
        };
        if let Some(live) = &running {
            live.link.hold(true);
            if let Err(error) = live.machine.stop().await {
                tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "a machine could not be stopped; its network is cut off nevertheless");
            }
        }
        // Its time does not end it before it is known whose it is. The loop sets the deadline again.
        self.set_deadline(Some(FAR_AWAY));
        self.record("fenced", serde_json::json!({}));
        let mut waiting = Vec::new();
        loop {
            match inbox.recv().await {
                Some(Command::SetFence(false)) => break,
                Some(Command::SetFence(true)) => {}
                Some(Command::LetGo) => {
                    self.unplug();
                    return Fenced::Left;
                }
                Some(Command::Abandon { answer }) => {
                    self.abandon(answer).await;
                    return Fenced::Left;
                }
                Some(Command::Change { request: request @ Request::End(_), answer }) => {
                    let ended = self.change(request).await;
                    let is_over = ended.is_ok();
                    // The caller may have gone; the change stands.
                    drop(answer.send(ended));
                    if is_over {
                        return Fenced::Left;
                    }
                }
                Some(Command::Change { answer, .. }) => drop(answer.send(Err(Refused::Fenced.into()))),
                Some(Command::Freeze { answer, .. }) => drop(answer.send(Err(Refused::Fenced.into()))),
                Some(Command::Rewind { answer, .. }) => drop(answer.send(Err(Refused::Fenced.into()))),
                Some(Command::Depart { answer }) => drop(answer.send(Err(Refused::Fenced.into()))),
                // These end a save that has begun, and only write the row.
                Some(command @ (Command::Saved { .. } | Command::Folded { .. })) => self.carry_out(command).await,
                Some(command) => waiting.push(command),
                None => return Fenced::GoesOn,
            }
        }
        if let Some(live) = running {
            // If the machine does not go on, the task notices and ends the sandbox.
            let _ = self.go_on(&live).await;
        }
        self.record("unfenced", serde_json::json!({}));
        for command in waiting {
            self.carry_out(command).await;
        }
        Fenced::GoesOn
    }

    /// Ends the machine and leaves the row to the caller.
    pub(super) async fn abandon(&mut self, answer: oneshot::Sender<()>) {
        self.unplug();
        if let Some(live) = self.live() {
            end_and_remove(&live.machine, &self.dir).await;
        }
        // The caller may have gone, and asks again.
        let _ = answer.send(());
    }
}
