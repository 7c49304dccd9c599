//! Volumes: named disks that outlive sandboxes.
//!
//! A volume is a sparse file with an ext4 file system, `volumes/ID.img`, and a row in the store, which makes it one:
//! a file without a row is half of one. Who has it is written down before anything of it is opened, many who read or
//! one who writes, and QEMU's own lock on the file holds the same once more.
//!
//! It is plugged into a machine that runs, and mounted by the guest; the host never reads what is on it. A machine
//! that is saved with volumes is restored with something in the same slots: the volumes themselves when it is woken,
//! copies when it is forked.

mod attach;
mod carry;
mod info;
mod make;
mod sweep;

pub use attach::VolumeWish;
pub use info::{Attachment, OnVolumes, SavedVolume, VolumeError, VolumeId, VolumeInfo, VolumeKind};
pub use make::VolumeView;

pub(crate) use attach::{Claimed, let_go, plugs};
pub(crate) use carry::copies;
pub(crate) use make::copy_now;
