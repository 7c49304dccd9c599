//! Empty disks over a layer that is about to be: made once by `qemu-img`, then by writing another name into them.
//!
//! Starting `qemu-img` takes longer than a machine stands still. All names of layers are of one length, so an overlay
//! over one layer becomes one over another by replacing that name.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_vmm::disk::{DiskFormat, create_overlay};
use sandling_vmm::jail::LAYERS;
use sandling_wire::new_private_directory;
use tokio::sync::Mutex;

use super::error::SnapshotError;
use crate::model::{SnapshotId, disk_layer_name};

const PLACEHOLDER: &str = "00000000-0000-0000-0000-000000000000";

/// One overlay for every size of disk.
pub(crate) struct Overlays {
    snapshots: PathBuf,
    by_size: Mutex<HashMap<u32, Arc<[u8]>>>,
}

impl Overlays {
    /// The directory is where they are made, and where what is left of one is swept.
    pub(crate) fn new(snapshots: PathBuf) -> Self {
        Self { snapshots, by_size: Mutex::default() }
    }

    /// The bytes of an empty disk over the layer of a snapshot.
    pub(crate) async fn over(&self, id: &SnapshotId, disk_mib: u32) -> Result<Vec<u8>, SnapshotError> {
        let mut by_size = self.by_size.lock().await;
        let template = match by_size.get(&disk_mib) {
            Some(template) => template.clone(),
            None => {
                let made: Arc<[u8]> = make(&self.snapshots, disk_mib).await?.into();
                by_size.insert(disk_mib, made.clone());
                made
            }
        };
        Ok(renamed(&template, &disk_layer_name(id))
            .ok_or_else(|| io::Error::other("qemu-img made a strange overlay"))?)
    }
}

async fn make(snapshots: &Path, disk_mib: u32) -> Result<Vec<u8>, SnapshotError> {
    let dir = snapshots.join(SnapshotId::fresh().as_str());
    new_private_directory(&dir)?;
    let path = dir.join("overlay.qcow2");
    let backing = format!("{LAYERS}/{}", placeholder_layer());
    let made = create_overlay(&path, &backing, DiskFormat::Qcow2, u64::from(disk_mib) << 20).await;
    let bytes = tokio::fs::read(&path).await;
    // What stays is no snapshot, and is swept like one that was not finished.
    let _ = tokio::fs::remove_dir_all(&dir).await;
    made?;
    Ok(bytes?)
}

fn placeholder_layer() -> String {
    disk_layer_name(&SnapshotId::parse(PLACEHOLDER).expect("zeros make a UUID"))
}

/// The overlay with another layer's name; `None` unless it contains the placeholder exactly once.
fn renamed(template: &[u8], name: &str) -> Option<Vec<u8>> {
    let old = placeholder_layer();
    let mut found = template.windows(old.len()).enumerate().filter(|(_, window)| *window == old.as_bytes());
    let (at, _) = found.next()?;
    if found.next().is_some() || name.len() != old.len() {
        return None;
    }
    let mut bytes = template.to_vec();
    bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_overlay_names_the_layer_that_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let overlays = Overlays::new(dir.path().to_owned());
        let [one, two] = [SnapshotId::fresh(), SnapshotId::fresh()];
        let first = overlays.over(&one, 64).await.unwrap();
        let second = overlays.over(&two, 64).await.unwrap();
        let names = |bytes: &[u8], id: &SnapshotId| {
            let name = format!("{LAYERS}/{}", disk_layer_name(id));
            bytes.windows(name.len()).filter(|window| *window == name.as_bytes()).count()
        };
        assert_eq!((names(&first, &one), names(&second, &two), names(&second, &one)), (1, 1, 0));
        assert_eq!(first.len(), second.len());
        assert_eq!(&first[..4], b"QFI\xfb");
    }
}
