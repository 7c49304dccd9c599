//! Going back to a checkpoint.

use super::start::SandboxTask;
use crate::lifecycle::{self, Request};
use crate::machine::end_and_remove;
use crate::model::{Cause, Checkpoint, Mark, SandboxInfo, State};
use crate::sandbox::{ChangeError, CreateError, Phase};
use crate::snapshot::SnapshotError;

impl SandboxTask {
    /// Hibernates the sandbox at the checkpoint and wakes it there. The caller has made a checkpoint of where it was,
    /// unless it slept. A sandbox that cannot be woken is left asleep, to be woken later.
    pub(super) async fn rewind(&mut self, to: &Checkpoint) -> Result<Option<u64>, ChangeError> {
        lifecycle::decide(self.phase.borrow().state(), &Request::Hibernate)?;
        let found = self.parts.snapshots.get(&to.snapshot).map_err(SnapshotError::from)?;
        let snapshot = found.ok_or(SnapshotError::Unknown)?;
        // Checked while the machine still runs.
        self.parts.snapshots.source(&snapshot).map_err(CreateError::from)?;
        let mut info = SandboxInfo { state: State::Hibernated, standing: snapshot.standing(), ..self.info.clone() };
        let live = self.live();
        let slept = self.info.standing.restored.clone().filter(|_| live.is_none());
        if let Some(slept) = slept.filter(|slept| !info.timeline.snapshots().any(|known| known == slept)) {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            let checkpoint = info.timeline.begin(mark, slept);
            info.timeline.add(checkpoint, Some(to.number));
        }
        let was = info.timeline.current;
        info.timeline.went_to(to.number);
        self.commit(info)?;
        self.record("rewound", serde_json::json!({ "to": to.number, "was": was }));
        self.phase.send_replace(Phase::Hibernated);
        if let Some(live) = live {
            live.link.hold(true);
            self.unplug();
            end_and_remove(&live.machine, &self.dir).await;
        }
        self.change(Request::Wake).await?;
        Ok(was)
    }
}
