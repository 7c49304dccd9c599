//! Sandboxes: how they are made, used, limited and ended, and how what a dead process left behind is found.
//!
//! An [`Engine`] owns a home directory's store and machines. [`Engine::create`] gives a [`Sandbox`]; commands, files
//! and contexts go through it. The engine knows the machine (`vmm`), the template (`image`) and the guest
//! (`protocol`); it knows no HTTP and no terminal.

mod causes;
mod config;
mod diff;
mod disk_space;
mod engine;
mod events;
mod fair_slots;
#[doc(hidden)]
pub mod fuzzing;
mod hashing;
mod host;
mod lifecycle;
mod link;
mod machine;
mod model;
pub mod network;
pub mod owner;
mod parts;
mod process_cache;
mod registry;
mod sandbox;
pub mod scan;
mod snapshot;
mod sparse;
pub mod store;
mod task;
mod trace;
mod transit;
mod volume;

pub use causes::with_causes;
pub use config::EngineConfig;
pub use diff::{Change as DiffChange, Diff, DiffError, FileChange, FilePatch, LeftOut, Point, SKIPPED, TarStream};
pub use engine::{
    Arrived, Consignment, CreateSpec, Engine, Evictable, EvictableKind, Fork, ForkError, ForkSpec, MoveError, MovePlan,
    OpenError, PointNote, PreparedCreate, Receipt, Rewound, TemplateCopyError, TemplateOffer, TemplateStream, Tied,
    check_tagged, tied,
};
pub use events::Events;
pub use fair_slots::{FairSlots, Slot};
pub use lifecycle::Refused;
pub use link::{LinkError, StreamSender};
pub use machine::{
    BakeError, DesktopError, ExportedTemplate, IdentifyError, ImportedTemplate, Machines, MakeError, Standbys, Step,
    TemplateArchiveError, TemplateError, TemplateSummary, alias_note, stored_name,
};
pub use model::{
    Attachment, BootMode, Cause, Checkpoint, DEFAULT_WORKSPACE, EndReason, FailedOver, Failover, Kept, Lifetime,
    LifetimeChange, MOST_CHECKPOINTS, NetworkDefault, NetworkSettings, OnVolumes, ProcessDefaults, SandboxId,
    SandboxInfo, SandboxSettings, SavedVolume, Sleep, SnapshotId, SnapshotInfo, SnapshotSpec, Standing, State,
    Timeline, TimelineError, USUAL_CHECKPOINTS, VolumeId, VolumeInfo, VolumeKind,
};
pub use network::{
    NetworkChange, NetworkChangeError, NetworkConfig, NetworkDefaultChange, NetworkError, NetworkSpec, Networks,
};
pub use process_cache::Fallback as ProcessCacheFallback;
pub use sandbox::{
    ArchiveDownload, ArchiveUpload, Call, Cell, CellOutput, ChangeError, CheckpointError, Collected, CreateError,
    Download, Execution, GrowError, Output, RunError, RunLimits, RunSpec, Sandbox, SandboxUsage, Upload, UseError,
    Watch,
};
pub use sandling_wire::{HOME_VARIABLE, Home, TEMPLATES_VARIABLE};
pub use snapshot::{
    CargoError, ExportError, HostNeeds, ImportError, IncomingSnapshot, KeptPoint, KeptSnapshot, PartFile, RestoreError,
    SaveTimes, SnapshotError, SnapshotParts, Snapshots, WantedFile,
};
pub use store::{Event, StoreError, Unreadable, secrets_in_any_header, unreadable_rows};
pub use trace::TRACE_TARGET;
pub use volume::{IncomingVolume, VolumeError, VolumeMoment, VolumeSpec, VolumeView, Volumes};
