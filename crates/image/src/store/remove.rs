//! Removing a template and the files that nothing else uses.

use std::collections::BTreeSet;
use std::fs;
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
    /// `in_use` is `None`, removes only the name. The caller checks that the template is no longer needed.
    pub fn remove(
        &self,
        name: &TemplateName,
        in_use: Option<&BTreeSet<ContentId>>,
        report: Report<'_>,
    ) -> Result<(), BuildError> {
        let _lock = StoreLock::acquire(&self.dir, report)?;
        if !names::all(&self.dir).map_err(io_at("list", &self.dir))?.contains(name) {
            return Err(LoadError::NotBuilt { name: name.clone() }.into());
        }
        names::unset(&self.dir, name).map_err(io_at("remove the name in", &self.dir))?;
        in_use.map_or(Ok(()), |in_use| self.collect_garbage(in_use))
    }

    fn collect_garbage(&self, in_use: &BTreeSet<ContentId>) -> Result<(), BuildError> {
        let mut kept = in_use.clone();
        for name in names::all(&self.dir).map_err(io_at("list", &self.dir))? {
            // A name with an unreadable entry might stand for any image, so nothing is garbage.
            let Ok(Some(id)) = names::get(&self.dir, &name) else { return Ok(()) };
            kept.insert(id);
        }
        sweep(&self.dir.join("images"), &kept)?;
        let mut parts: [BTreeSet<ContentId>; 3] = Default::default();
        for id in &kept {
            if !self.dir.join("images").join(id.as_str()).exists() {
                continue;
            }
            // An unreadable image might use any part.
            let Ok(image) = self.read_image(id, None) else { return Ok(()) };
            let manifest = image.manifest;
            for (set, part) in parts.iter_mut().zip([manifest.root, manifest.kernel, manifest.initrd]) {
                set.insert(part.id);
            }
        }
        for (kind, used) in Kind::ALL.iter().zip(&parts) {
            sweep(&kind.parent(&self.dir), used)?;
        }
        Ok(())
    }
}

fn sweep(dir: &Path, kept: &BTreeSet<ContentId>) -> Result<(), BuildError> {
    for entry in fs::read_dir(dir).map_err(io_at("list", dir))?.flatten() {
        let is_kept = kept.iter().any(|id| entry.file_name() == id.as_str());
        if !is_kept {
            fs::remove_dir_all(entry.path()).map_err(io_at("remove", &entry.path()))?;
        }
    }
    Ok(())
}
