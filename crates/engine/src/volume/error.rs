//! Why a volume cannot be made, copied, attached or deleted.

use sandling_vmm::machine::MachineError;

use crate::link::LinkError;
use crate::model::{LEAST_MIB, LONGEST_NAME, MOST_MIB, MOST_VOLUMES, is_mount_point, is_name};
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error(
        "a volume's name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores, and begins with a letter or digit"
    )]
    Name,
    #[error("a volume has between {LEAST_MIB} and {MOST_MIB} MiB, not {0}")]
    Size(u32),
    #[error("there is a volume {0:?} already")]
    Exists(String),
    #[error("there is no volume {0:?}")]
    Unknown(String),
    #[error("volume {name:?} is in use by sandbox {by}: one may write it, or many read it")]
    InUse { name: String, by: String },
    #[error("volume {0:?} is a snapshot, which never changes; attach it read-only, or clone it")]
    NeverChanges(String),
    #[error("a sandbox has at most {MOST_VOLUMES} volumes")]
    TooMany,
    #[error("two volumes cannot be {0:?}")]
    Twice(String),
    #[error("{0:?} is no place for a volume: give an absolute path such as /data")]
    Place(String),
    #[error("the host has only {available_mib} MiB of disk space left; ask for a smaller volume or delete one")]
    NoSpace { available_mib: u64 },
    #[error("the sandbox has volumes: say what its copy does with them, `volumes`: `detach`, `read_only` or `clone`")]
    NotSaid,
    #[error("a snapshot without memory has no volumes: say `volumes`: `detach`, or keep the memory")]
    OnlyDisk,
    #[error(
        "a sandbox with volumes has no checkpoints: going back would put old memory over newer files; use a fork or a snapshot"
    )]
    NoCheckpoints,
    #[error("the volume did not arrive whole: {0}; nothing was stored, so repeat the request")]
    Incomplete(&'static str),
    #[error("the volume could not be mounted")]
    Guest(#[from] LinkError),
    #[error("the volume could not be plugged in")]
    Machine(#[from] MachineError),
    #[error("a volume's file cannot be written; is the disk full?")]
    Files(#[from] std::io::Error),
    #[error("mke2fs failed (Debian: apt install e2fsprogs): {0}")]
    FileSystem(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the work was cut off")]
    CutOff,
}

pub(super) fn check_name(name: &str) -> Result<(), VolumeError> {
    if is_name(name) { Ok(()) } else { Err(VolumeError::Name) }
}

pub(super) fn check_mount(path: &str) -> Result<(), VolumeError> {
    if is_mount_point(path) { Ok(()) } else { Err(VolumeError::Place(path.to_owned())) }
}
