//! Sandboxes: how they are made, used, limited and ended, and how what a dead process left behind is found.
//!
//! An [`Engine`] owns a home directory's store and machines. [`Engine::create`] gives a [`Sandbox`]; commands, files
//! and contexts go through it. The engine knows the machine (`vmm`), the template (`image`) and the guest
//! (`protocol`); it knows no HTTP and no terminal.

mod bake;
mod checkpoint;
mod config;
mod contexts;
mod create;
mod diff;
mod engine;
mod exec;
mod expiry;
mod files;
mod fork;
mod format;
mod hibernate;
mod identify;
mod keep;
mod lifecycle;
mod link;
mod made;
mod memory;
pub mod network;
pub mod owner;
mod ports;
mod process_cache;
mod recover;
mod sandbox;
pub mod scan;
mod settings;
mod snapshot;
mod space;
mod stall;
mod standby;
pub mod store;
mod template;
mod ticks;
mod timeline;
mod unreadable;
mod volume;

pub use bake::BakeError;
pub use checkpoint::{CheckpointError, Rewound};
pub use config::EngineConfig;
pub use contexts::{Cell, CellOutput};
pub use create::{CreateError, CreateSpec, DEFAULT_WORKSPACE, GrowError};
pub use diff::{
    Change as DiffChange, Diff, DiffError, FileChange, FilePatch, FileState, LeftOut, Point, SKIPPED, TarStream,
};
pub use engine::{Engine, OpenError};
pub use exec::{Collected, Execution, Output, RunError, RunSpec};
pub use expiry::{Lifetime, LifetimeChange, Sleep};
pub use files::{Download, Upload, Watch};
pub use fork::{FORK_INDEX, FORK_PARENT, FORK_TREE, Fork, ForkError, ForkSpec, Receipt};
pub use identify::IdentifyError;
pub use lifecycle::{Refused, State};
pub use link::{LinkError, StreamSender};
pub use made::MakeError;
pub use network::{
    NetworkChange, NetworkChangeError, NetworkConfig, NetworkDefault, NetworkDefaultChange, NetworkError,
    NetworkSettings, NetworkWish,
};
pub use process_cache::Fallback as ProcessCacheFallback;
pub use sandbox::{BootMode, ChangeError, EndReason, Sandbox, SandboxId, SandboxInfo, SandboxUsage, UseError};
pub use sandling_wire::{HOME_VARIABLE, Home, TEMPLATES_VARIABLE};
pub use settings::{ProcessDefaults, SandboxSettings};
pub use snapshot::{
    ExportError, ImportError, RestoreError, SaveTimes, SnapshotError, SnapshotId, SnapshotInfo, Standing,
};
pub use store::{Event, StoreError, Unreadable, unreadable_rows};
pub use template::{Step, TemplateError, TemplateSummary, alias_note, stored_name};
pub use timeline::{Cause, Checkpoint, MOST_CHECKPOINTS, Timeline, TimelineError, USUAL_CHECKPOINTS};
pub use volume::{
    Attachment, OnVolumes, SavedVolume, VolumeError, VolumeId, VolumeInfo, VolumeKind, VolumeView, VolumeWish,
};
