//! Parts on the disk: published once, found by how they were made, verified before each use.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::{Depth, FileDigest, Mismatch, Stamps, digest};
use crate::error::{BuildError, io_at};
use crate::manifest::{Part, Provenance};
use crate::name::ContentId;
use crate::progress::{Progress, Report, Step, while_waiting};
use crate::publish::{publish_dir, write_json};

const DESCRIPTION: &str = "part.json";
/// The folder with the stamps of the part's files; see [`Stamps`].
const STAMPS: &str = "stamps";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Root,
    Kernel,
    Initrd,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Root, Kind::Kernel, Kind::Initrd];

    pub(crate) fn parent(self, store: &Path) -> PathBuf {
        store.join(match self {
            Kind::Root => "roots",
            Kind::Kernel => "kernels",
            Kind::Initrd => "initrds",
        })
    }

    pub(crate) fn dir(self, store: &Path, id: &ContentId) -> PathBuf {
        self.parent(store).join(id.as_str())
    }
}

#[derive(Serialize, Deserialize)]
struct Description {
    part: Part,
    provenance: Provenance,
}

pub(crate) struct Parts {
    store: PathBuf,
}

impl Parts {
    pub(crate) fn new(store: &Path) -> Self {
        Self { store: store.to_owned() }
    }

    /// Moves the finished files in `dir` to the directory that is named by their content.
    pub(crate) fn publish(
        &self,
        kind: Kind,
        dir: &Path,
        provenance: Provenance,
        report: Report<'_>,
    ) -> Result<Part, BuildError> {
        let mut files = BTreeMap::new();
        for name in list(dir, "").map_err(io_at("list", dir))? {
            let file = digest_reported(&dir.join(&name), report)?;
            files.insert(name, file);
        }
        self.publish_verified(kind, dir, Part::of(files), provenance, report)
    }

    /// Does the same for files whose digests the caller has just computed.
    pub(crate) fn publish_verified(
        &self,
        kind: Kind,
        dir: &Path,
        part: Part,
        provenance: Provenance,
        report: Report<'_>,
    ) -> Result<Part, BuildError> {
        let description = Description { part, provenance };
        let place = kind.dir(&self.store, &description.part.id);
        write_json(&dir.join(DESCRIPTION), &description).map_err(io_at("describe", dir))?;
        fs::create_dir(dir.join(STAMPS)).map_err(io_at("create stamps in", dir))?;
        self.discard_if_damaged(kind, &description.part)?;
        let progress = Progress::of(Step::Publish, description.part.id.as_str());
        while_waiting(&progress, report, || publish_dir(dir, &place)).map_err(io_at("publish", &place))?;
        let stamps = Stamps::new(place.join(STAMPS));
        for name in description.part.files.keys() {
            let path = place.join(name);
            stamps.trust(&path).map_err(io_at("look at", &path))?;
        }
        Ok(description.part)
    }

    /// The undamaged parts for which `pick` returns something. Damaged ones are removed, so that they are built again.
    pub(crate) fn find_all<T>(
        &self,
        kind: Kind,
        pick: impl Fn(Provenance) -> Option<T>,
    ) -> Result<Vec<(Part, T)>, BuildError> {
        let mut found = Vec::new();
        for Description { part, provenance } in self.list(kind) {
            if let Some(picked) = pick(provenance)
                && self.discard_if_damaged(kind, &part)?
            {
                found.push((part, picked));
            }
        }
        Ok(found)
    }

    /// All parts with a readable description. Other entries stay until `remove` collects garbage.
    fn list(&self, kind: Kind) -> Vec<Description> {
        let Ok(entries) = fs::read_dir(kind.parent(&self.store)) else { return Vec::new() };
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path.join(DESCRIPTION)).ok()?).ok();
        entries.flatten().filter_map(|entry| read(entry.path())).collect()
    }

    pub(crate) fn verify(&self, kind: Kind, part: &Part, depth: Depth) -> Result<(), Mismatch> {
        let dir = kind.dir(&self.store, &part.id);
        let stamps = Stamps::new(dir.join(STAMPS));
        part.files.iter().try_for_each(|(name, file)| stamps.verify(&dir.join(name), file, depth))
    }

    /// Whether the part exists and is undamaged. Removes a damaged one.
    fn discard_if_damaged(&self, kind: Kind, part: &Part) -> Result<bool, BuildError> {
        let dir = kind.dir(&self.store, &part.id);
        if !dir.exists() {
            return Ok(false);
        }
        let Err(mismatch) = self.verify(kind, part, Depth::Stamp) else { return Ok(true) };
        tracing::warn!(part = %dir.display(), %mismatch, "removing a damaged part");
        fs::remove_dir_all(&dir).map_err(io_at("remove", &dir))?;
        Ok(false)
    }
}

pub(crate) fn digest_reported(path: &Path, report: Report<'_>) -> Result<FileDigest, BuildError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut tell = |done, total| {
        report(&Progress { step: Step::Checksum, done, total: Some(total), detail: name.clone() });
    };
    digest(path, &mut tell).map_err(io_at("read", path))
}

/// Whether the store keeps a file of its own under this name beside a part's files.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == DESCRIPTION || name == STAMPS
}

/// The names of the files in `dir`, without those in its subdirectories.
pub(crate) fn files_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(files)
}

/// The paths of all files below `dir`, relative to it.
fn list(dir: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files.extend(list(&entry.path(), &format!("{name}/"))?);
        } else {
            files.push(name);
        }
    }
    Ok(files)
}
