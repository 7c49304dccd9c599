//! Volumes: named disks that outlive sandboxes.
//!
//! A volume is a sparse file with an ext4 file system, `volumes/ID.img`, and a row in the store. A file without a row is
//! left over and is swept. A claim in the store says who uses the volume, many readers or one writer, before its file is
//! opened. QEMU's lock on the file enforces the same again.
//!
//! A volume is plugged into a running machine, and the guest mounts it; the host never reads its content. A machine that
//! was saved with volumes needs something in the same slots when it is restored: the volumes themselves after a wake,
//! copies after a fork.
//!
//! Another home can get a copy of a volume as a stream (`send.rs`, `receive.rs`). The copy is a volume of its own there.

mod attach;
mod carry;
mod copy;
mod error;
mod make;
mod receive;
mod send;
mod sweep;
mod volumes;

pub use attach::VolumeSpec;
pub use error::VolumeError;
pub use make::VolumeView;
pub use receive::IncomingVolume;
pub use send::VolumeMoment;
pub use volumes::Volumes;

pub(crate) use attach::Claimed;
pub(crate) use carry::copies;
pub(crate) use copy::{Copying, copy_file};
