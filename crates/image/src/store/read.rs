//! Opening a store, and reading from it. Readers take no lock, because entries appear and disappear atomically.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::Mode;
use rustix::process::umask;

use super::image::Image;
use super::names;
use crate::debian::Debian;
use crate::digest::Depth;
use crate::error::LoadError;
use crate::manifest::{FORMAT, Manifest};
use crate::name::{ContentId, TemplateName};
use crate::supply::Supply;

/// All templates below one directory.
pub struct ImageStore {
    pub(super) dir: PathBuf,
    pub(super) supply: Box<dyn Supply>,
}

/// A name in the store, and its image or the reason why it cannot be used.
#[derive(Debug)]
pub struct TemplateEntry {
    pub name: TemplateName,
    pub image: Result<Image, LoadError>,
}

impl ImageStore {
    /// Opens the store in `dir`, which is created if it does not exist.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, LoadError> {
        Self::with_launcher(dir, "/proc/self/exe")
    }

    /// Does the same for a program that cannot be the launcher of a build's jail itself, like a test.
    pub fn with_launcher(dir: impl Into<PathBuf>, launcher: impl Into<PathBuf>) -> Result<Self, LoadError> {
        Self::with_supply(dir.into(), Box::new(Debian { launcher: launcher.into() }))
    }

    pub(crate) fn with_supply(dir: PathBuf, supply: Box<dyn Supply>) -> Result<Self, LoadError> {
        // Whatever this process writes from here on, it must be able to trust later, and no other user may change it.
        let wished = umask(Mode::from_raw_mode(0o077));
        umask(wished | Mode::from_raw_mode(0o022));
        for sub in ["", "roots", "kernels", "initrds", "images", "names", "scratch"] {
            let path = dir.join(sub);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|source| LoadError::Io { doing: "create", path, source })?;
        }
        // Canonical, because paths are passed to other programs, and a build's scratch directory is named after it.
        let dir = fs::canonicalize(&dir).map_err(|source| LoadError::Io { doing: "find", path: dir, source })?;
        Ok(Self { dir, supply })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The image of a template, verified: every file has its size, and was read in full since it last changed.
    pub fn load(&self, name: &TemplateName) -> Result<Image, LoadError> {
        let image = self.inspect(name)?;
        image.verify(Depth::Stamp)?;
        Ok(image)
    }

    /// An image by id, verified. It may have lost its name and still be in use.
    pub fn load_image(&self, id: &ContentId) -> Result<Image, LoadError> {
        let image = self.read_image(id, None)?;
        image.verify(Depth::Stamp)?;
        Ok(image)
    }

    /// The image of a template according to its manifest, without verifying the files.
    pub fn inspect(&self, name: &TemplateName) -> Result<Image, LoadError> {
        let found = names::get(&self.dir, name);
        let id =
            found.map_err(|error| LoadError::Damaged { name: name.clone(), what: format!("its entry: {error}") })?;
        let id = id.ok_or_else(|| LoadError::NotBuilt { name: name.clone() })?;
        self.read_image(&id, Some(name))
    }

    /// Whether there is a template of this name, even if it is damaged.
    pub fn has_name(&self, name: &TemplateName) -> bool {
        !matches!(names::get(&self.dir, name), Ok(None))
    }

    /// Notes that a template was used. The time of a name's entry says when that was.
    pub fn mark_used(&self, name: &TemplateName) {
        names::mark_used(&self.dir, name);
    }

    /// When a template was last used.
    pub fn used_at(&self, name: &TemplateName) -> Option<SystemTime> {
        names::used_at(&self.dir, name)
    }

    /// Every name, in alphabetical order.
    pub fn list(&self) -> Result<Vec<TemplateEntry>, LoadError> {
        let found = names::all(&self.dir);
        let found = found.map_err(|source| LoadError::Io { doing: "list", path: self.dir.clone(), source })?;
        Ok(found.into_iter().map(|name| TemplateEntry { image: self.inspect(&name), name }).collect())
    }

    pub(super) fn read_image(&self, id: &ContentId, name: Option<&TemplateName>) -> Result<Image, LoadError> {
        let path = self.dir.join("images").join(id.as_str()).join("manifest.json");
        let damaged = |what: String| match name {
            Some(name) => LoadError::Damaged { name: name.clone(), what },
            None => LoadError::DamagedImage { id: id.clone(), what },
        };
        let bytes = fs::read(&path).map_err(|error| damaged(format!("its manifest: {error}")))?;
        let manifest = parse_manifest(&bytes).map_err(|refusal| match refusal {
            Refusal::TooNew(format) => LoadError::TooNew { id: id.clone(), format },
            Refusal::Broken(what) => damaged(format!("its manifest: {what}")),
        })?;
        if manifest.id != *id || !manifest.is_consistent() {
            return Err(damaged("its manifest was altered".to_owned()));
        }
        Ok(Image::new(&self.dir, manifest))
    }
}

pub(crate) enum Refusal {
    TooNew(u32),
    Broken(String),
}

/// Reads the format first, because the rest of a newer manifest may not be readable.
pub(crate) fn parse_manifest(bytes: &[u8]) -> Result<Manifest, Refusal> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        format: u32,
    }
    let broken = |error: serde_json::Error| Refusal::Broken(error.to_string());
    let versioned: Versioned = serde_json::from_slice(bytes).map_err(broken)?;
    if versioned.format > FORMAT {
        return Err(Refusal::TooNew(versioned.format));
    }
    serde_json::from_slice(bytes).map_err(broken)
}
