//! Importing a snapshot from one file, which is not trusted.
//!
//! The import writes all files to a directory of its own and checks every digest. Only then does it move them to where
//! snapshots are stored. The row is written last.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use sandling_vmm::memory::{Extent, MemoryMap};
use sandling_wire::new_private_directory;
use serde_json::Value;

use super::files::Files;
use super::portable::{Entry, LONGEST_MANIFEST, MAGIC, MadeOn, Manifest, Role, base_id, roles};
use super::snapshots::Snapshots;
use super::work_dir::WorkDir;
use crate::hashing::{Hashed, digest_of};
use crate::host::available_space_mib;
use crate::machine::{Baked, can_restore, root_layer};
use crate::model::{Base, Part, SavedVolume, SnapshotId, SnapshotInfo, Visibility, upgrade_row};
use crate::sparse::{PartsError, read_parts};
use crate::store::StoreError;

/// How much space must stay free.
const SPARE_MIB: u64 = 256;
const MOST_LAYERS: usize = 64;
/// Device state is some hundred kilobytes, a map a few megabytes.
const LARGEST_SMALL_FILE: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("this is no exported snapshot")]
    NotOne,
    #[error("the exported snapshot is damaged: {0}")]
    Damaged(&'static str),
    #[error("the snapshot was made on {what} {theirs:?}; this host has {ours:?}, on which it cannot go on")]
    OtherHost { what: &'static str, theirs: String, ours: String },
    #[error("the snapshot was made by another version of Sandling or another build of QEMU, and cannot go on here")]
    OtherVersion,
    #[error("another snapshot here has a layer of the same id and other content")]
    Clash,
    #[error("the host has only {available_mib} MiB of disk space left for the snapshot's {needed_mib}")]
    NoSpace { available_mib: u64, needed_mib: u64 },
    #[error("the snapshot has no memory and boots with template `{template}`, which is not here in the same build")]
    NoImage { template: String },
    #[error("the import was cut off or cannot be written")]
    Io(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early"),
            // The decompressor reports damaged input with these kinds.
            io::ErrorKind::Other | io::ErrorKind::InvalidData => Self::Damaged("it cannot be decompressed"),
            _ => Self::Io(error),
        }
    }
}

impl From<PartsError> for ImportError {
    fn from(error: PartsError) -> Self {
        match error {
            PartsError::Outside => Self::Damaged("a part of a file lies outside of it"),
            PartsError::Read(error) => error.into(),
            PartsError::Write(error) => Self::Io(error),
        }
    }
}

impl Snapshots {
    /// Reads a snapshot that was exported, here or elsewhere, and makes it one of this workspace. Blocks.
    pub fn import(
        self: &Arc<Self>,
        workspace: &str,
        name: Option<String>,
        mut from: impl Read,
    ) -> Result<SnapshotInfo, ImportError> {
        let mut magic = vec![0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(|_| ImportError::NotOne)?;
        if magic != MAGIC {
            return Err(ImportError::NotOne);
        }
        let mut stream = zstd::Decoder::new(from).map_err(ImportError::Io)?;
        // More than any genuine export needs; it bounds the memory of a decompression bomb.
        stream.window_log_max(27).map_err(ImportError::Io)?;
        let (manifest, text) = read_manifest(&mut stream)?;
        self.check(&manifest)?;
        let work = WorkDir::create(&self.dir).map_err(ImportError::Io)?;
        let import = Import { manifest: &manifest, work: work.path() };
        let imported = import.read_checked(&mut stream, &text);
        imported.and_then(|digests| {
            let lowest = &digests[digests.len().saturating_sub(3)..];
            let base = import.base(self, lowest);
            import.settle(self, Settling::new(SnapshotId::fresh(), workspace, name, base))
        })
    }

    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), ImportError> {
        let snapshot = &manifest.snapshot;
        check_sizes(snapshot)?;
        let hardware = self.machines.hardware(snapshot.vcpus, snapshot.memory_mib);
        if let Some((what, theirs, ours)) = manifest.made_on.differs_from(MadeOn::here(&hardware)) {
            return Err(ImportError::OtherHost { what, theirs, ours });
        }
        if !can_restore(&snapshot.bake, &hardware) {
            return Err(ImportError::OtherVersion);
        }
        check_files(manifest)?;
        let needed_mib = (manifest.files.iter().map(|entry| entry.bytes).sum::<u64>() >> 20) / 4;
        match available_space_mib(&self.dir) {
            // Most of it is holes. A quarter is an estimate; a full disk is noticed later in any case.
            Some(available_mib) if available_mib < needed_mib + SPARE_MIB => {
                Err(ImportError::NoSpace { available_mib, needed_mib })
            }
            _ => Ok(()),
        }
    }
}

/// Reads a decompressed export into a directory and checks it, as an import does. For fuzzing.
pub(crate) fn read_export(stream: &mut impl Read, work: &Path) -> Result<(), ImportError> {
    let (manifest, text) = read_manifest(stream)?;
    check_sizes(&manifest.snapshot)?;
    check_files(&manifest)?;
    Import { manifest: &manifest, work }.read_checked(stream, &text).map(drop)
}

fn check_sizes(snapshot: &SnapshotInfo) -> Result<(), ImportError> {
    let sizes = (1..=16).contains(&snapshot.vcpus) && (256..=65_536).contains(&snapshot.memory_mib);
    if !sizes || snapshot.disk_mib > 1 << 20 {
        return Err(ImportError::Damaged("its sizes are none"));
    }
    Ok(())
}

/// The files must be those that the snapshot needs, and no larger than they can be.
fn check_files(manifest: &Manifest) -> Result<(), ImportError> {
    let snapshot = &manifest.snapshot;
    let ids = snapshot.memory.iter().chain(&snapshot.disk);
    let ids_are = ids.clone().all(SnapshotId::is_well_formed);
    if snapshot.memory.is_empty() || snapshot.disk.is_empty() || ids.count() > MOST_LAYERS || !ids_are {
        return Err(ImportError::Damaged("its layers are none"));
    }
    if !are_layer_names(&manifest.root, &manifest.baked) {
        return Err(ImportError::Damaged("its lowest layers have strange names"));
    }
    if !SavedVolume::are_plausible(&snapshot.volumes) {
        return Err(ImportError::Damaged("its volumes are none"));
    }
    let named: Vec<Role> = manifest.files.iter().map(|entry| entry.role.clone()).collect();
    if named != roles(snapshot) {
        return Err(ImportError::Damaged("its files are not those that it needs"));
    }
    let (memory, disk) = (u64::from(snapshot.memory_mib) << 20, u64::from(snapshot.disk_mib) << 20);
    let fits = |entry: &Entry| match &entry.role {
        Role::BaseMemory => entry.bytes == memory,
        Role::Pages(_) => entry.bytes <= memory,
        Role::BaseRoot | Role::BaseDisk | Role::Disk(_) => entry.bytes <= disk + disk / 8 + (1 << 20),
        Role::Map | Role::State | Role::Overlay => entry.bytes <= LARGEST_SMALL_FILE,
        Role::Volume(slot) => snapshot
            .volumes
            .iter()
            .any(|volume| volume.was.slot == *slot && entry.bytes == u64::from(volume.was.size_mib) << 20),
    };
    if !manifest.files.iter().all(fits) {
        return Err(ImportError::Damaged("a file is larger than it can be"));
    }
    Ok(())
}

/// Whether these can be the names of a template's root disk and of a bake's disk.
pub(super) fn are_layer_names(root: &str, baked: &str) -> bool {
    let plain = |name: &str, prefix: &str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        (1..=100).contains(&rest.len()) && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    plain(root, "root-") && plain(baked, "baked-")
}

fn read_manifest(stream: &mut impl Read) -> Result<(Manifest, Vec<u8>), ImportError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_MANIFEST {
        return Err(ImportError::Damaged("its manifest is too long"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let unreadable = |_| ImportError::Damaged("its manifest cannot be read");
    let manifest = serde_json::from_slice(&text).map_err(unreadable)?;
    Ok((parse_manifest(manifest)?, text))
}

pub(super) fn parse_manifest(mut manifest: Value) -> Result<Manifest, ImportError> {
    if let Some(snapshot) = manifest.get_mut("snapshot") {
        upgrade_row(snapshot);
    }
    serde_json::from_value(manifest).map_err(|_| ImportError::Damaged("its manifest cannot be read"))
}

/// A snapshot on its way in.
pub(super) struct Import<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) work: &'a Path,
}

/// What a snapshot becomes here.
pub(super) struct Settling<'a> {
    pub(super) id: SnapshotId,
    pub(super) workspace: &'a str,
    pub(super) name: Option<String>,
    /// Where the lowest layers go; `None` if a template of this home has the bake that the snapshot stands on.
    pub(super) base: Option<Base>,
    pub(super) visibility: Visibility,
    pub(super) created_at: Timestamp,
}

impl<'a> Settling<'a> {
    fn new(id: SnapshotId, workspace: &'a str, name: Option<String>, base: Option<Base>) -> Self {
        Self { id, workspace, name, base, visibility: Visibility::Listed, created_at: Timestamp::now() }
    }
}

impl Import<'_> {
    pub(super) fn at(&self, number: usize) -> PathBuf {
        self.work.join(number.to_string())
    }

    /// Reads and checks all files, and returns their digests.
    fn read_checked(&self, stream: &mut impl Read, manifest: &[u8]) -> Result<Vec<[u8; 32]>, ImportError> {
        let digests = self.read(stream, manifest)?;
        self.check_layers()?;
        self.check_map()?;
        Ok(digests)
    }

    /// Reads all files, and returns their digests.
    fn read(&self, stream: &mut impl Read, manifest: &[u8]) -> Result<Vec<[u8; 32]>, ImportError> {
        let mut all = blake3::Hasher::new();
        all.update(manifest);
        let mut digests = Vec::new();
        for (number, entry) in self.manifest.files.iter().enumerate() {
            let mut hashed = Hashed::new(&mut *stream);
            read_file(&mut hashed, &self.at(number), entry.bytes)?;
            let seen = hashed.digest();
            let mut told = [0; 32];
            stream.read_exact(&mut told)?;
            if seen != told {
                return Err(ImportError::Damaged("a file is not as it was written"));
            }
            all.update(&seen);
            digests.push(seen);
        }
        let mut told = [0; 32];
        stream.read_exact(&mut told)?;
        if all.finalize() != told {
            return Err(ImportError::Damaged("it is not as it was written"));
        }
        Ok(digests)
    }

    /// Checks that the files are the layers that the snapshot was made of.
    pub(super) fn check_layers(&self) -> Result<(), ImportError> {
        let snapshot = &self.manifest.snapshot;
        for (number, entry) in self.manifest.files.iter().enumerate() {
            let digest = match &entry.role {
                Role::Pages(id) => snapshot.sum(Part::Memory, id).map(|sum| sum.digest),
                Role::Disk(id) => snapshot.sum(Part::Disk, id).map(|sum| sum.digest),
                Role::Map => Some(snapshot.digests.map.clone()),
                Role::State => Some(snapshot.digests.state.clone()),
                Role::Overlay | Role::Volume(_) | Role::BaseMemory | Role::BaseRoot | Role::BaseDisk => None,
            };
            if digest.is_some_and(|digest| digest_of(&self.at(number)).ok() != Some(digest)) {
                return Err(ImportError::Damaged("a layer is not what the snapshot was made of"));
            }
        }
        Ok(())
    }

    /// Checks that the map of memory names only parts of the machine's memory and of the layers' files.
    pub(super) fn check_map(&self) -> Result<(), ImportError> {
        let number = self.manifest.files.iter().position(|entry| entry.role == Role::Map).unwrap_or_default();
        let map = fs::read(self.at(number)).map_err(ImportError::Io)?;
        let map = MemoryMap::decode(&map).map_err(|_| ImportError::Damaged("its map of memory cannot be read"))?;
        let layers = self.manifest.files.iter().filter(|entry| matches!(entry.role, Role::Pages(_)));
        let layers: Vec<u64> = layers.map(|entry| entry.bytes).collect();
        let memory = u64::from(self.manifest.snapshot.memory_mib) << 20;
        let fits = |extent: &Extent| {
            let layer = usize::try_from(extent.layer).ok().and_then(|layer| layers.get(layer));
            extent.guest + extent.bytes <= memory && layer.is_some_and(|bytes| extent.at + extent.bytes <= *bytes)
        };
        if !map.extents().iter().all(fits) {
            return Err(ImportError::Damaged("its map of memory does not fit its layers"));
        }
        Ok(())
    }

    /// Moves all files to their places. Layers that exist already are compared and not replaced.
    pub(super) fn settle(&self, store: &Arc<Snapshots>, settling: Settling<'_>) -> Result<SnapshotInfo, ImportError> {
        let snapshots = &store.dir;
        let Settling { id, workspace, name, base, visibility, created_at } = settling;
        // No file may be swept before the row is written.
        let _held: Vec<_> = std::iter::once(&id)
            .chain(self.manifest.snapshot.stands_on())
            .chain(base.iter().map(|base| &base.id))
            .map(|id| store.hold(id))
            .collect();
        let mut places: BTreeMap<SnapshotId, Vec<(usize, PathBuf)>> = BTreeMap::new();
        for (number, entry) in self.manifest.files.iter().enumerate() {
            let own = Files::new(snapshots, &id);
            let of = |id: &SnapshotId| (id.clone(), Files::new(snapshots, id));
            let (owner, path) = match (&entry.role, &base) {
                (Role::Pages(id), _) => (of(id).0, of(id).1.pages()),
                (Role::Disk(id), _) => (of(id).0, of(id).1.disk()),
                (Role::Map, _) => (id.clone(), own.map()),
                (Role::State, _) => (id.clone(), own.state()),
                (Role::Overlay, _) => (id.clone(), own.overlay()),
                (Role::Volume(slot), _) => (id.clone(), own.volume(*slot)),
                (Role::BaseMemory, Some(base)) => (base.id.clone(), of(&base.id).1.base_memory()),
                (Role::BaseRoot, Some(base)) => (base.id.clone(), of(&base.id).1.base_root()),
                (Role::BaseDisk, Some(base)) => (base.id.clone(), of(&base.id).1.disk()),
                // This home has the same bake.
                (Role::BaseMemory | Role::BaseRoot | Role::BaseDisk, None) => continue,
            };
            places.entry(owner).or_default().push((number, path));
        }
        // Bytes before names: a file in its place is trusted, also by the server that starts after a power failure.
        store.sync().map_err(ImportError::Io)?;
        // A sweep that began earlier does not know that these snapshots are held, and may be about to remove a layer that is
        // here already.
        let _no_sweep = store.sweeping.blocking_lock();
        for (owner, files) in &places {
            self.place(Files::new(snapshots, owner).dir(), files)?;
        }
        let mut info = SnapshotInfo {
            id,
            workspace: workspace.to_owned(),
            name: name.or_else(|| self.manifest.snapshot.name.clone()),
            parent: None,
            created_at,
            base,
            synced: true,
            ..self.manifest.snapshot.clone()
        };
        info.digest = info.computed_digest();
        store.sync().map_err(ImportError::Io)?;
        store.store.insert_snapshot(&info, visibility, 0)?;
        Ok(info)
    }

    /// Where the lowest layers go, given their digests. `None` if this home has them as a template's.
    pub(super) fn base(&self, store: &Snapshots, lowest: &[[u8; 32]]) -> Option<Base> {
        let snapshot = &self.manifest.snapshot;
        let image = store.machines.images.load_image(&snapshot.image).ok();
        let baked = image.as_ref().and_then(|image| Baked::load(&image.baked_dir(&snapshot.bake)).ok().flatten());
        let here = baked.is_some_and(|baked| baked.layer_name() == self.manifest.baked)
            && image.is_some_and(|image| root_layer(&image).name == self.manifest.root);
        let (root, baked) = (self.manifest.root.clone(), self.manifest.baked.clone());
        (!here).then(|| Base { id: base_id(&snapshot.image, &root, &baked, lowest), root, baked })
    }

    /// Moves files into a directory that is new, or compares them with what is in it and adds what it lacks: a directory may
    /// be that of a layer, whose snapshot comes later.
    fn place(&self, dir: &Path, files: &[(usize, PathBuf)]) -> Result<(), ImportError> {
        if dir.exists() {
            for (number, path) in files {
                let from = self.at(*number);
                if !path.exists() {
                    fs::set_permissions(&from, Permissions::from_mode(0o444)).map_err(ImportError::Io)?;
                    fs::rename(&from, path).map_err(ImportError::Io)?;
                } else if !same(&from, path).unwrap_or(false) {
                    return Err(ImportError::Clash);
                }
            }
            return Ok(());
        }
        let fresh = self.work.join("placing");
        new_private_directory(&fresh).map_err(ImportError::Io)?;
        for (number, path) in files {
            let name = path.file_name().unwrap_or_default();
            // Machines run as other users.
            fs::set_permissions(self.at(*number), Permissions::from_mode(0o444)).map_err(ImportError::Io)?;
            fs::rename(self.at(*number), fresh.join(name)).map_err(ImportError::Io)?;
        }
        fs::rename(&fresh, dir).map_err(ImportError::Io)
    }
}

pub(super) fn read_file(from: &mut impl Read, path: &Path, length: u64) -> Result<(), ImportError> {
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(ImportError::Io)?;
    file.set_len(length).map_err(ImportError::Io)?;
    Ok(read_parts(from, &file, length)?)
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (first, second) = (fs::metadata(one)?, fs::symlink_metadata(other)?);
    // A layer that this home had already.
    let is_link = (first.dev(), first.ino()) == (second.dev(), second.ino());
    Ok(is_link || first.len() == second.len() && digest_of(one)? == digest_of(other)?)
}

#[cfg(test)]
mod tests;
