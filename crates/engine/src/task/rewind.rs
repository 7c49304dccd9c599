//! Going back to a checkpoint.

use std::sync::Arc;

use super::start::SandboxTask;
use crate::lifecycle::Request;
use crate::machine::{Live, end_and_remove};
use crate::model::{Cause, Checkpoint, Mark, Moment, SandboxInfo, State};
use crate::sandbox::{ChangeError, CreateError, Phase};
use crate::snapshot::SnapshotError;

impl SandboxTask {
    /// Hibernates the sandbox at the checkpoint and wakes it there. The caller has made a checkpoint of where it was,
    /// unless it slept. A sandbox that cannot be woken is left asleep, to be woken later.
    pub(super) async fn rewind(&mut self, to: &Checkpoint) -> Result<Option<u64>, ChangeError> {
        let found = self.parts.snapshots.get(&to.snapshot).map_err(SnapshotError::from)?;
        let snapshot = found.ok_or(SnapshotError::Unknown)?;
        // Checked while the machine still runs.
        self.parts.snapshots.source(&snapshot).map_err(CreateError::from)?;
        let mut timeline = self.info.timeline.clone();
        let slept = self.info.standing.restored.clone().filter(|_| self.live().is_none());
        if let Some(slept) = slept.filter(|slept| !timeline.snapshots().any(|known| known == slept)) {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            let checkpoint = timeline.begin(mark, slept);
            timeline.add(checkpoint, Some(to.number));
        }
        let was = timeline.current;
        timeline.went_to(to.number);
        self.change(Request::Rewind(Box::new(Moment { standing: snapshot.standing(), timeline }))).await?;
        self.record("rewound", serde_json::json!({ "to": to.number, "was": was }));
        self.change(Request::Wake).await?;
        Ok(was)
    }

    /// The row names the moment before the machine ends, so that the next engine finds one or the other.
    pub(super) async fn hibernate_at(&mut self, moment: Moment, live: Option<&Arc<Live>>) -> Result<(), ChangeError> {
        let Moment { standing, timeline } = moment;
        self.commit(SandboxInfo { state: State::Hibernated, standing, timeline, ..self.info.clone() })?;
        self.phase.send_replace(Phase::Hibernated);
        if let Some(live) = live {
            live.link.hold(true);
            self.unplug();
            end_and_remove(&live.machine, &self.dir).await;
        }
        Ok(())
    }
}
