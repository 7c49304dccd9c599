//! What a handle asks of the task that owns the sandbox.

use std::path::PathBuf;

use tokio::sync::oneshot;

use super::error::{ChangeError, CheckpointError, UseError};
use crate::lifecycle;
use crate::model::{Checkpoint, LifetimeChange, Mark, NetworkSettings, SnapshotId, SnapshotSpec, Visibility};
use crate::network::{NetworkChange, NetworkChangeError};
use crate::snapshot::{Saving, SnapshotError};
use crate::store::StoreError;
use crate::volume::VolumeError;

/// A request to a sandbox's task.
pub(crate) enum Command {
    Change {
        request: lifecycle::Request,
        answer: oneshot::Sender<Result<(), ChangeError>>,
    },
    SetLifetime {
        change: LifetimeChange,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    SetNetwork {
        change: NetworkChange,
        answer: oneshot::Sender<Result<NetworkSettings, NetworkChangeError>>,
    },
    /// Copies the machine, which stops for a moment. The copy is written in the background.
    Freeze {
        spec: SnapshotSpec,
        visibility: Visibility,
        /// Present for a checkpoint.
        mark: Option<Mark>,
        answer: oneshot::Sender<Result<(Saving, Option<Checkpoint>), SnapshotError>>,
    },
    /// Copies a volume that the sandbox writes, as it is at one moment.
    CopyVolume {
        from: PathBuf,
        to: PathBuf,
        answer: oneshot::Sender<Result<(), VolumeError>>,
    },
    /// A save has been written.
    Saved {
        /// What the next save of its memory is compared with. Absent if only its disk was saved.
        snapshot: Option<SnapshotId>,
        checkpoint: Option<Checkpoint>,
        /// A checkpoint that must stay although there are too many.
        spared: Option<u64>,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Goes back to a checkpoint. The answer is the checkpoint it was at.
    Rewind {
        to: Checkpoint,
        answer: oneshot::Sender<Result<Option<u64>, ChangeError>>,
    },
    /// The disk no longer stands on these layers.
    Folded {
        layers: Vec<SnapshotId>,
        answer: oneshot::Sender<()>,
    },
    NameCheckpoint {
        which: String,
        name: Option<String>,
        answer: oneshot::Sender<Result<Checkpoint, CheckpointError>>,
    },
    /// Stops looking after the sandbox if it hibernates, because another home may get it.
    Depart {
        answer: oneshot::Sender<Result<(), UseError>>,
    },
    /// Whether the machine stands still because another node may have taken the sandbox over.
    SetFence(bool),
    /// Another node has the sandbox. Its machine ends, and its row is for the caller.
    Abandon {
        answer: oneshot::Sender<()>,
    },
    /// Stops looking after the machine, which keeps running.
    LetGo,
}
