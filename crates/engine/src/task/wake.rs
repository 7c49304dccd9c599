//! Waking a sandbox where it hibernated, or booting it from its disk, under the same id.

use std::sync::Arc;

use super::start::SandboxTask;
use crate::machine::end_and_remove;
use crate::model::{Kept, SandboxInfo, State};
use crate::sandbox::{ChangeError, Phase};

impl SandboxTask {
    /// The row says that the sandbox runs before it can be used and before it can reach anything. Otherwise it might do
    /// the same things again after a crash, from where it slept.
    pub(super) async fn wake(&mut self, from: Kept) -> Result<(), ChangeError> {
        let mut info = SandboxInfo { state: State::Running, ..self.info.clone() };
        if from == Kept::Disk {
            info.standing.restored = None;
            info.standing.saved = None;
        }
        let boots = info.standing.restored.is_none();
        info.boots += u32::from(boots);
        let live = Arc::new(self.hibernation.clone().restore(&info).await?);
        if info.lifetime.sleep.is_free {
            info.lifetime.from = jiff::Timestamp::now();
        }
        if let Err(error) = self.commit(info) {
            end_and_remove(&live.machine, &self.dir).await;
            return Err(error.into());
        }
        // The caller is about to use it, so its idle time starts now.
        drop(self.activity.begin());
        self.connect(&live).await;
        self.record("woken", serde_json::json!({ "booted": boots }));
        self.phase.send_replace(Phase::Running(live));
        self.tell_authority();
        if let Some(sandbox) = self.handle.upgrade() {
            sandbox.fold_behind(&self.parts.snapshots);
        }
        Ok(())
    }
}
