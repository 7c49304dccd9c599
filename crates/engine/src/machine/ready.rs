//! Machines that run and are not yet handed out.

use std::fs;
use std::path::{Path, PathBuf};

use sandling_vmm::machine::{Machine, MachineDir, kill_leftover};

use super::error::MakeError;
use crate::events::Events;
use crate::link::Link;
use crate::model::SandboxId;
use crate::process_cache::Fallback;

/// A machine's directory names its engine in this file.
pub(crate) const ENGINE_FILE: &str = "engine";

/// A sandbox's machine and the link to its guest.
pub(crate) struct Live {
    pub(crate) machine: Machine,
    pub(crate) link: Link,
}

/// A machine with a link to its guest. Dropping it ends the machine and removes its directory.
pub(crate) struct ReadyMachine {
    pub(crate) id: SandboxId,
    pub(super) live: Option<Live>,
    pub(crate) dir: PathBuf,
    /// Why it was restored from device state although it should have been resumed from a cached process.
    pub(super) fallback: Option<Fallback>,
}

impl ReadyMachine {
    fn live(&self) -> &Live {
        self.live.as_ref().expect("taken only by `into_live` and `discard`, which consume it")
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.live().machine
    }

    pub(crate) fn link(&self) -> &Link {
        &self.live().link
    }

    /// Records the fallback as an event of the sandbox that gets the machine.
    pub(crate) fn note_fallback(&self, events: &Events, workspace: &str) {
        if let Some(reason) = self.fallback {
            let detail = serde_json::json!({ "reason": reason.name() });
            events.note(&self.id, workspace, "process_cache_fallback", detail);
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.machine().died().borrow().is_none() && self.link().closed().borrow().is_none()
    }

    /// Lets a standby run. Does nothing to a machine that runs.
    pub(crate) async fn go_on(&self) -> Result<(), MakeError> {
        self.machine().cont().await?;
        self.link().hold(false);
        Ok(())
    }

    pub(crate) fn into_live(mut self) -> Live {
        self.live.take().expect("taken only here and in `discard`, which consume it")
    }

    pub(crate) async fn discard(mut self) {
        if let Some(live) = self.live.take() {
            end_and_remove(&live.machine, &self.dir).await;
        }
    }
}

impl Drop for ReadyMachine {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            let dir = std::mem::take(&mut self.dir);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { end_and_remove(&live.machine, &dir).await });
            }
        }
    }
}

/// Ends a machine and removes its directory.
pub(crate) async fn end_and_remove(machine: &Machine, dir: &Path) {
    if let Err(error) = machine.end().await {
        tracing::warn!(dir = %dir.display(), error = &error as &dyn std::error::Error, "could not end a machine; the next start tries again");
        return;
    }
    if let Err(error) = fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "could not remove a machine's directory");
    }
}

/// Ends a machine that a dead engine left, and removes its directory.
pub(crate) async fn remove_leftover(dir: &Path) {
    if let Err(error) = kill_leftover(&MachineDir::new(dir)).await {
        tracing::warn!(dir = %dir.display(), error = &error as &dyn std::error::Error, "could not end a machine that a dead engine left");
        return;
    }
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "could not remove the directory of a machine that a dead engine left");
    }
}
