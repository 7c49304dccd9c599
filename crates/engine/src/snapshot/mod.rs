//! Snapshots: a machine's memory, disk and device state at one moment, as one thing.
//!
//! A snapshot stores what its machine wrote since the one before it, and stands on that one and on its template's
//! bake. What others stand on is kept for them, also after it was deleted by its owner.
//!
//! ```text
//! snapshots/ID/pages         the layer of memory that it adds
//!              map           all layers of memory together
//!              state         the devices
//!              disk.qcow2    the layer of the disk that it adds
//!              overlay.qcow2 an empty disk on top, to be copied
//!              volume-N.img  what was on a volume, if that was to be kept
//!              process, process.used, plan, thaw.json  its process, if it is cached (see `process_cache`)
//! ```
//!
//! The row in the store, which makes it a snapshot, is written last; a directory without a row is half of one, or the
//! layer of a disk whose machine goes on although its memory could not be saved.

mod cargo;
mod error;
mod export;
mod fetched;
mod files;
mod import;
mod kept;
pub(crate) mod mend;
mod overlay;
mod parts;
mod portable;
mod restore;
mod save;
mod snapshots;
mod sweep;
mod template;
mod unwritten;
mod waiting;
mod work_dir;

pub(crate) use cargo::Cargo;
pub use cargo::CargoError;
pub use error::SnapshotError;
pub use fetched::{IncomingSnapshot, WantedFile};
pub use import::ImportError;
pub(crate) use import::read_export;
pub(crate) use kept::POINT_KEY;
pub use kept::{KeptPoint, KeptSnapshot};
pub use parts::{HostNeeds, PartFile, SnapshotParts};
pub use portable::ExportError;
pub use restore::RestoreError;
pub use save::SaveTimes;
pub(crate) use save::{Save, Saving, Startable};
pub(crate) use snapshots::HeldSnapshot;
pub use snapshots::Snapshots;
pub(crate) use template::untagged;
pub(crate) use waiting::WaitingSaves;
