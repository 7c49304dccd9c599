//! Removing what the builder has left on the disk.

use std::fs;

use sandling_builder::DIRECTORY;

use crate::Failure;

pub fn finish() -> Result<(), Failure> {
    match fs::remove_dir_all(DIRECTORY) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {DIRECTORY}: {error}"))
        }
        _ => Ok(()),
    }
}
