//! How much disk space the templates of each workspace take: images that it built, and bakes of sizes that it was the
//! first to use.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use sandling_image::{ContentId, ImageStore, Recipe};

use super::baked::Baked;
use super::names::{shown_name, workspace_of};
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
    /// The bakes of sizes that a workspace was the first to use, except those in the sizes that templates have themselves.
    pub(super) fn other_sizes(
        &self,
        images: &ImageStore,
        workspace: &str,
        own_size: impl Fn(&Recipe) -> String,
    ) -> Vec<StoredBake> {
        let mut found: Vec<StoredBake> = Vec::new();
        for image in images.list().unwrap_or_default().into_iter().filter_map(|entry| entry.image.ok()) {
            for dir in bake_dirs(&image.dir) {
                let key = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let is_own_size = key == own_size(&image.manifest.recipe);
                let shape = Shape { image: image.id.clone(), key };
                let known = is_own_size || found.iter().any(|other| other.shape == shape);
                if !known && Baked::workspace(&dir).as_deref() == Some(workspace) {
                    let (bytes, used_at) = (size(&dir), used_at(&dir));
                    found.push(StoredBake { shape, dir, bytes, used_at });
                }
            }
        }
        found
    }

    /// The templates of OCI images of a workspace.
    pub(super) fn image_templates(&self, images: &ImageStore, workspace: &str) -> Vec<EvictableTemplate> {
        let entries = images.list().unwrap_or_default().into_iter();
        let found = entries.filter_map(|entry| {
            let image = entry.image.ok().filter(|image| image.manifest.recipe.oci.is_some())?;
            let name = shown_name(workspace, entry.name.as_str())?;
            let bytes = on_disk(&image) + bake_dirs(&image.dir).iter().map(|dir| size(dir)).sum::<u64>();
            let used_at = images.used_at(&entry.name).and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default();
            Some(EvictableTemplate { name, image: image.id, bytes, used_at })
        });
        found.collect()
    }
}

/// A template that can be made of its OCI image again.
pub struct EvictableTemplate {
    pub name: String,
    pub(crate) image: ContentId,
    /// With its bakes.
    pub(crate) bytes: u64,
    pub(crate) used_at: Timestamp,
}

/// A bake and its directory.
pub struct StoredBake {
    pub(super) shape: Shape,
    pub(super) dir: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) used_at: Timestamp,
}

impl StoredBake {
    /// Its image and key, by which rows of sandboxes and snapshots name it.
    pub(crate) fn name(&self) -> (String, String) {
        (self.shape.image.to_string(), self.shape.key.clone())
    }
}

/// A bake's directory does not change, so its time says when it was used.
pub(super) fn mark_used(dir: &Path) {
    let _ = fs::File::open(dir).and_then(|dir| dir.set_modified(SystemTime::now()));
}

fn used_at(dir: &Path) -> Timestamp {
    let modified = fs::metadata(dir).and_then(|dir| dir.modified()).ok();
    modified.and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default()
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
