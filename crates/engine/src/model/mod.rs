//! Plain data: what the store writes and everything else passes around. It does no I/O and knows no other module.

mod format;
mod ids;
mod lifetime;
mod network;
mod rewrite;
mod sandbox;
mod settings;
mod snapshot;
mod state;
mod timeline;
mod volume;

pub(crate) use format::Format;
pub use ids::{SandboxId, SecretId, SnapshotId, VolumeId};
pub use lifetime::{Kept, Lifetime, LifetimeChange, Sleep};
pub(crate) use network::SavedState;
pub use network::{
    AttachedSecret, EffectivePolicy, Membership, NetworkDefault, NetworkSettings, SecretVersion, StoredDefault,
};
pub(crate) use rewrite::rewrite;
pub use sandbox::{BootMode, DEFAULT_WORKSPACE, ForkPlace, SandboxInfo};
pub use settings::{FailedOver, Failover, ProcessDefaults, SandboxSettings};
pub(crate) use settings::{read_row, upgrade_row};
pub use snapshot::{
    Base, Digests, Moving, SnapshotInfo, SnapshotSpec, SnapshotTemplate, Standing, Sum, Sums, Visibility,
};
pub(crate) use snapshot::{DISK, Part, disk_layer_name, top_name};
pub use state::{EndReason, State};
pub(crate) use timeline::Mark;
pub use timeline::{Cause, Checkpoint, MOST_CHECKPOINTS, Moment, Timeline, TimelineError, USUAL_CHECKPOINTS};
pub use volume::{Attachment, OnVolumes, SavedVolume, VolumeInfo, VolumeKind};
pub(crate) use volume::{LEAST_MIB, LONGEST_NAME, MOST_MIB, MOST_VOLUMES, is_mount_point, is_name};
