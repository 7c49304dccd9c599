//! The first file of an archive, and the files that follow it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use super::error::ArchiveError;
use crate::digest::FileDigest;
use crate::kernel::VMLINUZ;
use crate::manifest::{Manifest, Part};
use crate::name::{ContentId, TemplateName};
use crate::store::image::{INITRD, ROOT_IMG};
use crate::store::parts::{Kind, is_reserved};

pub(super) const HEADER: &str = "sandling-template.json";
pub(super) const MANIFEST: &str = "manifest.json";
/// Raise it when an older release could misread a new archive.
pub(super) const FORMAT: u32 = 1;

const MOST_BAKES: usize = 16;
const MOST_FILES: usize = 10_000;
const LONGEST_PATH: usize = 200;
/// Kernels, initrds and the state of devices are much smaller.
const LARGEST_SMALL_FILE: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveHeader {
    pub format: u32,
    pub name: TemplateName,
    pub image: ContentId,
    /// The version of Sandling that wrote the archive.
    pub sandling: String,
    /// What the files take on a disk. A sparse file is mostly holes.
    pub stored_bytes: u64,
    /// The rate of the exporting host's time stamp counter. Emulated guests take it for their clock, so a bake of one is
    /// wrong on a host with another rate.
    pub tsc_mhz: Option<u64>,
    /// The files of each bake, by its key.
    pub bakes: BTreeMap<String, Part>,
}

/// A file of an archive, after the header and the manifest.
pub(super) struct ArchivedFile<'a> {
    /// The path in the archive, and within the scratch directory of an import.
    pub(super) path: String,
    pub(super) digest: &'a FileDigest,
    /// The bake that it belongs to.
    pub(super) bake: Option<&'a str>,
}

pub(super) fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Root => "root",
        Kind::Kernel => "kernel",
        Kind::Initrd => "initrd",
    }
}

pub(super) fn bake_folder(key: &str) -> String {
    format!("baked/{key}")
}

pub(super) fn parts(manifest: &Manifest) -> [(Kind, &Part); 3] {
    [(Kind::Root, &manifest.root), (Kind::Kernel, &manifest.kernel), (Kind::Initrd, &manifest.initrd)]
}

impl ArchiveHeader {
    /// Reads the format first, because the rest of a newer header may not be readable.
    pub(super) fn parse(text: &[u8]) -> Result<Self, ArchiveError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let unreadable = |error: serde_json::Error| ArchiveError::damaged(format!("its header: {error}"));
        let Versioned { format } = serde_json::from_slice(text).map_err(unreadable)?;
        if format > FORMAT {
            return Err(ArchiveError::TooNew { format });
        }
        serde_json::from_slice(text).map_err(unreadable)
    }

    /// All files in the order of the archive.
    pub(super) fn files<'a>(&'a self, manifest: &'a Manifest) -> Vec<ArchivedFile<'a>> {
        fn of<'a>(folder: &str, part: &'a Part, bake: Option<&'a str>) -> Vec<ArchivedFile<'a>> {
            let file = |(name, digest)| ArchivedFile { path: format!("{folder}/{name}"), digest, bake };
            part.files.iter().map(file).collect()
        }
        let parts = parts(manifest).into_iter().flat_map(|(kind, part)| of(folder(kind), part, None));
        let bakes = self.bakes.iter().flat_map(|(key, part)| of(&bake_folder(key), part, Some(key)));
        parts.chain(bakes).collect()
    }

    /// Refuses names that a template does not have, and files that are larger than they can be.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let refuse = |what: &str| Err(ArchiveError::damaged(what));
        if self.image != manifest.id || !manifest.is_consistent() {
            return refuse("its manifest was altered");
        }
        if let Err(error) = manifest.recipe.check() {
            return Err(ArchiveError::Damaged(format!("its recipe: {error}")));
        }
        let only = |part: &Part, name: &str| part.files.len() == 1 && part.files.contains_key(name);
        let plain = |part: &Part| part.files.keys().all(|path| is_plain(path));
        let is_complete = only(&manifest.root, ROOT_IMG)
            && only(&manifest.initrd, INITRD)
            && manifest.kernel.files.contains_key(VMLINUZ)
            && manifest.kernel.files.len() <= MOST_FILES;
        if !is_complete || !plain(&manifest.kernel) {
            return refuse("it names files that a template does not have");
        }
        let is_bake = |(key, part): (&String, &Part)| {
            let is_key = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            is_key && (1..=64).contains(&key.len()) && part.files.len() <= 16 && plain(part) && part.is_consistent()
        };
        if self.bakes.len() > MOST_BAKES || !self.bakes.iter().all(is_bake) {
            return refuse("it names bakes that a template does not have");
        }
        let recipe = &manifest.recipe;
        let (disk, memory) = (u64::from(recipe.disk_mib) << 20, u64::from(recipe.memory_mib) << 20);
        let sizes = |part: &Part, most: u64| part.files.values().all(|file| file.size <= most);
        let fits = sizes(&manifest.root, disk)
            && sizes(&manifest.initrd, LARGEST_SMALL_FILE)
            && sizes(&manifest.kernel, LARGEST_SMALL_FILE)
            && self.bakes.values().all(|part| sizes(part, disk.max(memory) + LARGEST_SMALL_FILE));
        if fits { Ok(()) } else { refuse("a file is larger than it can be") }
    }
}

/// Whether a path stays below its directory and does not collide with the store's own files there.
fn is_plain(path: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte);
    let components = Path::new(path).components();
    let names: Option<Vec<_>> = components
        .map(|component| match component {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    (1..=LONGEST_PATH).contains(&path.len())
        && path.bytes().all(allowed)
        // Also refuses `a//b` and `a/./b`, which mean `a/b`.
        && names.is_some_and(|names| names.join("/") == path && !is_reserved(names[0]))
}
