//! Checkpoints and rollbacks.

use sandling_engine::{Cause, Checkpoint, Timeline};
use sandling_wire::{CheckpointView, TimelineView};

use super::IntoWire;

impl IntoWire for &Checkpoint {
    type Wire = CheckpointView;

    fn into_wire(self) -> CheckpointView {
        CheckpointView {
            number: self.number,
            name: self.name.clone(),
            at: self.at.to_string(),
            cause: match self.cause {
                Cause::Exec => "exec",
                Cause::Cell => "cell",
                Cause::Files => "files",
                Cause::Rewind => "rewind",
                Cause::Request => "request",
            },
            text: self.text.clone(),
            after: self.after,
            size_bytes: self.memory_bytes + self.disk_bytes,
        }
    }
}

impl IntoWire for Timeline {
    type Wire = TimelineView;

    fn into_wire(self) -> TimelineView {
        TimelineView {
            checkpoints: self.checkpoints().iter().map(IntoWire::into_wire).collect(),
            current: self.current,
            checkpoints_kept: self.keep,
        }
    }
}
