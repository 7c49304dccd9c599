//! Removing a template and the files that nothing else uses.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::lock::StoreLock;
use super::names;
use super::parts::Kind;
use super::read::ImageStore;
use crate::error::{BuildError, LoadError, io_at};
use crate::name::{ContentId, TemplateName};
use crate::progress::Report;

impl ImageStore {
    /// Removes the name, then every image without a name, except those `in_use`, and every part without an image. If
    /// `in_use` is `None`, removes only the name. The caller checks that the template is no longer needed. Returns how many
    /// bytes that freed.
    pub fn remove(
        &self,
        name: &TemplateName,
        in_use: Option<&BTreeSet<ContentId>>,
        report: Report<'_>,
    ) -> Result<u64, BuildError> {
        let _lock = StoreLock::acquire(&self.dir, report)?;
        if !names::all(&self.dir).map_err(io_at("list", &self.dir))?.contains(name) {
            return Err(LoadError::NotBuilt { name: name.clone() }.into());
        }
        names::unset(&self.dir, name).map_err(io_at("remove the name in", &self.dir))?;
        in_use.map_or(Ok(0), |in_use| self.collect_garbage(in_use))
    }

    fn collect_garbage(&self, in_use: &BTreeSet<ContentId>) -> Result<u64, BuildError> {
        let mut kept = in_use.clone();
        for name in names::all(&self.dir).map_err(io_at("list", &self.dir))? {
            // A name with an unreadable entry might stand for any image, so nothing is garbage.
            let Ok(Some(id)) = names::get(&self.dir, &name) else { return Ok(0) };
            kept.insert(id);
        }
        let mut freed = sweep(&self.dir.join("images"), &kept)?;
        let mut parts: [BTreeSet<ContentId>; 3] = Default::default();
        for id in &kept {
            if !self.dir.join("images").join(id.as_str()).exists() {
                continue;
            }
            // An unreadable image might use any part.
            let Ok(image) = self.read_image(id, None) else { return Ok(freed) };
            let manifest = image.manifest;
            for (set, part) in parts.iter_mut().zip([manifest.root, manifest.kernel, manifest.initrd]) {
                set.insert(part.id);
            }
        }
        for (kind, used) in Kind::ALL.iter().zip(&parts) {
            freed += sweep(&kind.parent(&self.dir), used)?;
        }
        Ok(freed)
    }
}

/// Removes the entries that are not kept. Returns how many bytes they took.
fn sweep(dir: &Path, kept: &BTreeSet<ContentId>) -> Result<u64, BuildError> {
    let mut freed = 0;
    for entry in fs::read_dir(dir).map_err(io_at("list", dir))?.flatten() {
        let is_kept = kept.iter().any(|id| entry.file_name() == id.as_str());
        if !is_kept {
            freed += stored_bytes(&entry.path());
            fs::remove_dir_all(entry.path()).map_err(io_at("remove", &entry.path()))?;
        }
    }
    Ok(freed)
}

/// What the files below a path take; disks and memory are mostly holes.
fn stored_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    metadata.blocks() * 512 + inside.map(|entry| stored_bytes(&entry.path())).sum::<u64>()
}
