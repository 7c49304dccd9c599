//! How much disk space the templates of each workspace take: images that it built, and bakes of sizes that it was the
//! first to use.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandling_image::ImageStore;

use super::bake::Baked;
use super::names::workspace_of;
use super::template::{Shape, on_disk};

/// Counted once and again after each change, because every create asks for it.
#[derive(Default)]
pub(super) struct StoredTemplates(Mutex<Option<HashMap<String, u64>>>);

impl StoredTemplates {
    pub(super) fn changed(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn mib(&self, images: &ImageStore, workspace: &str) -> u64 {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = counted.get_or_insert_with(|| count(images)).get(workspace);
        bytes.map_or(0, |bytes| bytes.div_ceil(1 << 20))
    }
}

impl StoredTemplates {
    /// The bakes of sizes that a workspace was the first to use.
    pub(super) fn of(&self, images: &ImageStore, workspace: &str) -> Vec<(Shape, PathBuf)> {
        let mut found = Vec::new();
        for image in images.list().unwrap_or_default().into_iter().filter_map(|entry| entry.image.ok()) {
            for dir in bake_dirs(&image.dir) {
                let key = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let shape = Shape { image: image.id.clone(), key };
                let known = found.iter().any(|(other, _)| *other == shape);
                if !known && Baked::workspace(&dir).as_deref() == Some(workspace) {
                    found.push((shape, dir));
                }
            }
        }
        found
    }
}

fn count(images: &ImageStore) -> HashMap<String, u64> {
    let (mut bytes, mut seen) = (HashMap::new(), BTreeSet::new());
    let mut add = |workspace: &str, more: u64| *bytes.entry(workspace.to_owned()).or_default() += more;
    for entry in images.list().unwrap_or_default() {
        let Ok(image) = entry.image else { continue };
        let built_in = sandling_image::resolve(entry.name.as_str()).is_ok();
        let owner = (!built_in).then(|| workspace_of(entry.name.as_str()));
        if let Some(owner) = owner {
            add(owner, on_disk(&image));
        }
        let first_seen = seen.insert(image.id.clone());
        for dir in bake_dirs(&image.dir) {
            match Baked::workspace(&dir) {
                Some(workspace) if first_seen => add(&workspace, size(&dir)),
                None => owner.into_iter().for_each(|owner| add(owner, size(&dir))),
                Some(_) => {}
            }
        }
    }
    bytes
}

fn bake_dirs(image: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(image.join("baked")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn size(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}
