//! One image, and the paths of its files.

use std::path::{Path, PathBuf};

use crate::digest::Depth;
use crate::error::LoadError;
use crate::kernel::VMLINUZ;
use crate::manifest::Manifest;
use crate::name::ContentId;
use crate::store::parts::{Kind, Parts};
use crate::trust::{check_trusted, check_trusted_files};

pub(crate) const ROOT_IMG: &str = "root.img";
pub(crate) const INITRD: &str = "initrd";

/// A template's files, verified when it was loaded.
#[derive(Debug, Clone)]
pub struct Image {
    pub id: ContentId,
    pub dir: PathBuf,
    pub manifest: Manifest,
    store: PathBuf,
}

impl Image {
    pub(crate) fn new(store: &Path, manifest: Manifest) -> Self {
        let dir = store.join("images").join(manifest.id.as_str());
        Self { id: manifest.id.clone(), dir, manifest, store: store.to_owned() }
    }

    /// The root disk, a raw image. Do not write to it.
    pub fn root_img(&self) -> PathBuf {
        Kind::Root.dir(&self.store, &self.manifest.root.id).join(ROOT_IMG)
    }

    pub fn kernel(&self) -> PathBuf {
        Kind::Kernel.dir(&self.store, &self.manifest.kernel.id).join(VMLINUZ)
    }

    pub fn initrd(&self) -> PathBuf {
        Kind::Initrd.dir(&self.store, &self.manifest.initrd.id).join(INITRD)
    }

    pub(super) fn part_dir(&self, kind: Kind) -> PathBuf {
        let part = match kind {
            Kind::Root => &self.manifest.root,
            Kind::Kernel => &self.manifest.kernel,
            Kind::Initrd => &self.manifest.initrd,
        };
        kind.dir(&self.store, &part.id)
    }

    /// The directory for a snapshot baked from this image; `key` stands for everything else that the snapshot depends on.
    /// Make the snapshot elsewhere and move it here with [`publish_dir`](crate::publish_dir).
    pub fn baked_dir(&self, key: &str) -> PathBuf {
        self.dir.join("baked").join(key)
    }

    /// Reads every file again.
    pub fn verify_full(&self) -> Result<(), LoadError> {
        self.verify(Depth::Full)
    }

    /// Refuses files that another user could have changed.
    fn check_trusted(&self) -> Result<(), LoadError> {
        check_trusted(&self.dir)?;
        let parts = [self.root_img(), self.kernel(), self.initrd()];
        let directories = parts.iter().filter_map(|path| path.parent());
        let kinds = directories.clone().filter_map(|path| path.parent());
        let manifest = self.dir.join("manifest.json");
        let files = parts.iter().map(|path| path.as_path()).chain([manifest.as_path()]);
        Ok(check_trusted_files(files.chain(directories).chain(kinds))?)
    }

    pub(crate) fn verify(&self, depth: Depth) -> Result<(), LoadError> {
        self.check_trusted()?;
        let parts = Parts::new(&self.store);
        let manifest = &self.manifest;
        let all = [(Kind::Root, &manifest.root), (Kind::Kernel, &manifest.kernel), (Kind::Initrd, &manifest.initrd)];
        for (kind, part) in all {
            parts.verify(kind, part, depth).map_err(|mismatch| LoadError::Damaged {
                name: manifest.recipe.name.clone(),
                what: mismatch.to_string(),
            })?;
        }
        Ok(())
    }
}
