//! Taking over a sandbox that a dead engine left, with its id and its processes.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use sandling_vmm::machine::{Machine, MachineDir};

use super::start::SandboxTask;
use crate::lifecycle::Request;
use crate::link::Link;
use crate::machine::{ENGINE_FILE, Live, remove_leftover};
use crate::model::{EndReason, SandboxInfo, State};
use crate::sandbox::{ChangeError, Phase};
use crate::snapshot::mend;
use crate::store::StoreError;

/// How long a guest has to answer the engine that takes it over. A guest that does not is ended.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

impl SandboxTask {
    /// A sandbox that cannot be taken over ends.
    pub(super) async fn take_over(&mut self, row: State) -> Result<(), ChangeError> {
        match self.taken_over(row).await {
            Ok(phase) => {
                if phase.live().is_ok() {
                    self.record("taken_over", serde_json::json!({}));
                }
                self.phase.send_replace(phase);
                self.tell_authority();
                Ok(())
            }
            Err(why) => Box::pin(self.change(Request::End(EndReason::Lost(why)))).await,
        }
    }

    async fn taken_over(&mut self, row: State) -> Result<Phase, String> {
        if row == State::Hibernated {
            // The machine was saved, and may have outlived the engine that was about to end it.
            remove_leftover(&self.dir).await;
            return self.own().map(|()| Phase::Hibernated).map_err(gone);
        }
        self.check_pages()?;
        let machine = Machine::adopt(MachineDir::new(&self.dir)).await.map_err(gone)?;
        let machine = machine.ok_or("its machine had ended")?;
        let greeting = Link::greet(machine.connect_control().await.map_err(gone)?).await.map_err(gone)?;
        // It may have been paused, and only a running guest can answer.
        machine.cont().await.map_err(gone)?;
        let link = greeting.answered(ANSWER_WITHIN).await.map_err(gone)?;
        if row == State::Paused {
            link.hold(true);
            machine.stop().await.map_err(gone)?;
        }
        let standing = mend::mended(&self.parts.snapshots, &machine, &self.dir, &self.info.standing).await;
        self.commit(SandboxInfo { standing: standing.map_err(gone)?, ..self.info.clone() }).map_err(gone)?;
        fs::write(self.dir.join(ENGINE_FILE), &self.parts.machines.factory.engine).map_err(gone)?;
        self.own().map_err(gone)?;
        let live = Arc::new(Live { machine, link });
        self.connect(&live).await;
        Ok(if row == State::Paused { Phase::Paused(live) } else { Phase::Running(live) })
    }

    /// A child of a fork runs before its parent's pages are all written. Without them it cannot continue.
    fn check_pages(&self) -> Result<(), String> {
        match &self.info.standing.restored {
            Some(id) if self.parts.snapshots.lacks_pages(id) => {
                Err("the server died before the memory of the sandbox that it was forked from was written".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Writes into the row that the sandbox is this engine's.
    fn own(&self) -> Result<(), StoreError> {
        self.parts.store.give_sandbox(self.info.id.as_str(), &self.parts.machines.factory.engine)
    }
}

fn gone(error: impl Error) -> String {
    format!("it could not be taken over: {error}")
}
