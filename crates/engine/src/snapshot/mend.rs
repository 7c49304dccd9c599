//! What a save that was cut off leaves behind: a disk that has moved on, and whose layer is not yet in its place.
//!
//! A save names its snapshot in the sandbox's row before it begins. An engine that takes over finds that name, asks the
//! machine whether its disk has moved on, and puts the layer where everybody looks for it.

use std::fs;
use std::path::Path;

use sandling_vmm::machine::{Machine, MachineDir};

use super::error::SnapshotError;
use super::files::Files;
use super::save::take;
use super::snapshots::Snapshots;
use crate::model::{Standing, top_name};

/// What a machine that was taken over stands on, whatever was being done to it.
pub(crate) async fn mended(
    snapshots: &Snapshots,
    machine: &Machine,
    dir: &Path,
    standing: &Standing,
) -> Result<Standing, SnapshotError> {
    let Some(moving) = &standing.moving else { return Ok(standing.clone()) };
    let mut mended = standing.clone();
    let fresh = top_name(&moving.id);
    if standing.disk.last() != Some(&moving.id) {
        let written = machine.disk_overlay().await.map_err(|_| SnapshotError::CutOff)?;
        if written.as_deref() != Some(&fresh) {
            // It never got so far. What was prepared goes with the machine.
            return Ok(Standing { moving: None, ..mended });
        }
        mended.disk.push(moving.id.clone());
        mended.top = Some(fresh);
    }
    finish_moving(snapshots, dir, &mended)?;
    Ok(Standing { moving: None, ..mended })
}

/// Puts the layer of the last save into its place, if it is not there yet.
pub(crate) fn finish_moving(snapshots: &Snapshots, dir: &Path, standing: &Standing) -> Result<(), SnapshotError> {
    let Some(moving) = &standing.moving else { return Ok(()) };
    let files = Files::new(&snapshots.dir, &moving.id);
    if standing.disk.last() != Some(&moving.id) || files.disk().symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(files.dir())?;
    take(&MachineDir::new(dir).files().join(&moving.from), &files.disk())
}
