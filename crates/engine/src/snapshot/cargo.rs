//! Snapshots on their way to another home, with all that they stand on. Unlike in an export, everything keeps its id, and
//! what the other home has already stays away.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_wire::private_directory;
use serde::{Deserialize, Serialize};
use tokio::sync::MutexGuard;

use super::files::Files;
use super::import::{ImportError, are_layer_names, read_file};
use super::portable::MadeOn;
use super::restore::{BakeFiles, RestoreError};
use super::snapshots::{HeldSnapshot, Snapshots};
use super::work_dir::WorkDir;
use crate::hashing::{Hashed, digest_of};
use crate::host::available_space_mib;
use crate::machine::{Baked, can_restore, root_layer};
use crate::model::{Base, Part, SnapshotId, SnapshotInfo, Visibility};
use crate::sparse::write_parts;
use crate::store::StoreError;

/// How much space must stay free.
const SPARE_MIB: u64 = 256;

#[derive(Debug, thiserror::Error)]
pub enum CargoError {
    #[error("the store's row of a snapshot that it needs is missing")]
    NoRow,
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a file of its snapshots cannot be read")]
    Io(#[from] io::Error),
}

/// Some snapshots, and the files that they need.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cargo {
    snapshots: Vec<Carried>,
    files: Vec<CargoFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Carried {
    info: SnapshotInfo,
    made_on: MadeOn,
    is_listed: bool,
    /// What it stands on where no template has its bake.
    base: Base,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CargoFile {
    owner: SnapshotId,
    kind: FileKind,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileKind {
    Pages,
    Disk,
    Map,
    State,
    Overlay,
    Volume(u32),
    BaseMemory,
    BaseRoot,
}

impl FileKind {
    fn path(self, snapshots: &Path, owner: &SnapshotId) -> PathBuf {
        let files = Files::new(snapshots, owner);
        match self {
            Self::Pages => files.pages(),
            Self::Disk => files.disk(),
            Self::Map => files.map(),
            Self::State => files.state(),
            Self::Overlay => files.overlay(),
            Self::Volume(slot) => files.volume(slot),
            Self::BaseMemory => files.base_memory(),
            Self::BaseRoot => files.base_root(),
        }
    }
}

/// A bake as others call it. Its layers' names are those of no other bake.
fn base_of(snapshot: &SnapshotInfo, files: &BakeFiles) -> Base {
    snapshot.base.clone().unwrap_or_else(|| {
        let (root, baked) = (files.root.name.clone(), files.baked.name.clone());
        Base { id: SnapshotId::of(&format!("carried base {} {root} {baked}", snapshot.image)), root, baked }
    })
}

impl Cargo {
    /// How large these files are together.
    pub(crate) fn bytes(&self, numbers: &[usize]) -> u64 {
        numbers.iter().filter_map(|number| self.files.get(*number)).map(|file| file.bytes).sum()
    }

    /// The same, with every snapshot in no list.
    pub(crate) fn hidden(mut self) -> Self {
        self.snapshots.iter_mut().for_each(|carried| carried.is_listed = false);
        self
    }

    /// How large all files are together.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The snapshot, if it is one alone.
    pub(crate) fn only(&self) -> Option<&SnapshotInfo> {
        match &self.snapshots[..] {
            [carried] => Some(&carried.info),
            _ => None,
        }
    }

    /// The snapshot that moves by itself.
    pub(crate) fn listed(&self) -> Option<&SnapshotInfo> {
        self.snapshots.iter().find(|carried| carried.is_listed).map(|carried| &carried.info)
    }

    fn owners(&self) -> impl Iterator<Item = &SnapshotId> {
        let ids = self.snapshots.iter().map(|carried| &carried.info.id);
        ids.chain(self.files.iter().map(|file| &file.owner))
    }

    /// Refuses what no home has packed. Ids and names become paths.
    fn check(&self) -> Result<(), ImportError> {
        let ids_are = self.owners().all(SnapshotId::is_well_formed);
        let is_one = |carried: &Carried| {
            let Carried { info, base, .. } = carried;
            let mut below = info.stands_on().chain([&base.id]);
            below.all(SnapshotId::is_well_formed) && are_layer_names(&base.root, &base.baked)
        };
        if !ids_are || !self.snapshots.iter().all(is_one) {
            return Err(ImportError::Damaged("it has strange ids or names"));
        }
        Ok(())
    }

    /// What a layer's file must be, if it is known.
    fn digest(&self, file: &CargoFile) -> Option<String> {
        let part = match file.kind {
            FileKind::Pages => Part::Memory,
            FileKind::Disk => Part::Disk,
            FileKind::Map | FileKind::State => {
                let carried = self.snapshots.iter().find(|carried| carried.info.id == file.owner)?;
                let digests = &carried.info.digests;
                return Some(if file.kind == FileKind::Map { digests.map.clone() } else { digests.state.clone() });
            }
            FileKind::Overlay | FileKind::Volume(_) | FileKind::BaseMemory | FileKind::BaseRoot => return None,
        };
        self.snapshots.iter().find_map(|carried| Some(carried.info.sum(part, &file.owner)?.digest))
    }
}

impl Snapshots {
    /// What has to be carried for these snapshots, and for these layers of a disk.
    pub(crate) fn cargo(&self, ids: &[SnapshotId], disk: &[SnapshotId]) -> Result<Cargo, CargoError> {
        let (mut carried, mut paths) = (Vec::new(), BTreeMap::new());
        let mut add = |owner: &SnapshotId, kind: FileKind, path: PathBuf| {
            paths.entry((owner.clone(), kind)).or_insert(path);
        };
        for id in ids {
            let (info, visibility) = self.store.snapshot(id)?.ok_or(CargoError::NoRow)?;
            let bake = self.bake_files(&info)?;
            let base = base_of(&info, &bake);
            add(&base.id, FileKind::BaseMemory, bake.memory);
            add(&base.id, FileKind::BaseRoot, bake.root.path);
            add(&base.id, FileKind::Disk, bake.baked.path);
            let own = if info.has_memory() {
                &[FileKind::Overlay, FileKind::Map, FileKind::State][..]
            } else {
                &[FileKind::Overlay]
            };
            let own = own.iter().map(|kind| (id, *kind));
            let layers = info.memory.iter().map(|id| (id, FileKind::Pages));
            let disks = info.disk.iter().chain(disk).map(|id| (id, FileKind::Disk));
            let copied = info.volumes.iter().filter(|volume| volume.copied);
            let volumes = copied.map(|volume| (id, FileKind::Volume(volume.was.slot)));
            for (owner, kind) in own.chain(layers).chain(disks).chain(volumes) {
                add(owner, kind, kind.path(&self.dir, owner));
            }
            let made_on = MadeOn::here(&self.machines.hardware(info.vcpus, info.memory_mib));
            carried.push(Carried { info, made_on, is_listed: visibility == Visibility::Listed, base });
        }
        let file = |((owner, kind), path): ((SnapshotId, FileKind), PathBuf)| -> io::Result<CargoFile> {
            Ok(CargoFile { owner, kind, bytes: fs::metadata(path)?.len() })
        };
        let files = paths.into_iter().map(file).collect::<io::Result<_>>()?;
        Ok(Cargo { snapshots: carried, files })
    }

    /// Which files of it this home lacks. The error says why it cannot take it.
    pub(crate) fn lacks(&self, cargo: &Cargo) -> Result<Vec<usize>, ImportError> {
        cargo.check()?;
        for carried in &cargo.snapshots {
            let info = &carried.info;
            let hardware = self.machines.hardware(info.vcpus, info.memory_mib);
            if let Some((what, theirs, ours)) = carried.made_on.differs_from(MadeOn::here(&hardware)) {
                return Err(ImportError::OtherHost { what, theirs, ours });
            }
            if !can_restore(&info.bake, &hardware) {
                return Err(ImportError::OtherVersion);
            }
            if !info.has_memory() && self.machines.images.load_image(&info.image).is_err() {
                return Err(ImportError::NoImage { template: info.template.clone() });
            }
        }
        let baked_here: Vec<_> =
            cargo.snapshots.iter().filter(|carried| self.has_bake(carried)).map(|carried| &carried.base.id).collect();
        let lacks = |file: &CargoFile| {
            let here = file.kind.path(&self.dir, &file.owner);
            !baked_here.contains(&&file.owner) && fs::metadata(here).ok().map(|here| here.len()) != Some(file.bytes)
        };
        let numbers: Vec<_> = (0..cargo.files.len()).filter(|number| lacks(&cargo.files[*number])).collect();
        // Most of it is holes. A full disk is noticed later in any case.
        let needed_mib = (cargo.bytes(&numbers) >> 20) / 4;
        match available_space_mib(&self.dir) {
            Some(available_mib) if available_mib < needed_mib + SPARE_MIB => {
                Err(ImportError::NoSpace { available_mib, needed_mib })
            }
            _ => Ok(numbers),
        }
    }

    /// Whether a template of this home has the bake that the snapshot stands on.
    fn has_bake(&self, carried: &Carried) -> bool {
        let Ok(image) = self.machines.images.load_image(&carried.info.image) else { return false };
        let baked = Baked::load(&image.baked_dir(&carried.info.bake)).ok().flatten();
        root_layer(&image).name == carried.base.root
            && baked.is_some_and(|baked| baked.layer_name() == carried.base.baked)
    }

    /// Writes these files of the cargo. Blocks.
    pub(crate) fn load(&self, cargo: &Cargo, numbers: &[usize], mut out: impl Write) -> Result<(), CargoError> {
        let mut bakes = BTreeMap::new();
        for carried in &cargo.snapshots {
            bakes.insert(&carried.base.id, self.bake_files(&carried.info)?);
        }
        for file in numbers.iter().filter_map(|number| cargo.files.get(*number)) {
            let path = match (bakes.get(&file.owner), file.kind) {
                (Some(bake), FileKind::BaseMemory) => bake.memory.clone(),
                (Some(bake), FileKind::BaseRoot) => bake.root.path.clone(),
                (Some(bake), FileKind::Disk) => bake.baked.path.clone(),
                _ => file.kind.path(&self.dir, &file.owner),
            };
            let mut hashed = Hashed::new(&mut out);
            write_parts(File::open(path)?, file.bytes, &mut hashed)?;
            let digest = hashed.digest();
            out.write_all(&digest)?;
        }
        Ok(())
    }

    /// Reads what [`load`](Self::load) wrote, and checks it. Blocks.
    pub(crate) fn unload<'s, 'c>(
        self: &'s Arc<Self>,
        cargo: &'c Cargo,
        numbers: &[usize],
        from: &mut impl Read,
    ) -> Result<Unloaded<'s, 'c>, ImportError> {
        let work = WorkDir::create(&self.dir).map_err(ImportError::Io)?;
        let files = numbers.iter().filter_map(|number| cargo.files.get(*number)).collect();
        let _held = cargo.owners().map(|id| self.hold(id)).collect();
        let unloaded = Unloaded { snapshots: self, cargo, files, work, _held };
        unloaded.read(from)?;
        Ok(unloaded)
    }

    fn adopt(&self, carried: &Carried) -> Result<(), StoreError> {
        let id = &carried.info.id;
        match self.store.snapshot(id)? {
            Some((_, Visibility::Hidden)) if carried.is_listed => self.store.list_snapshot(id, Visibility::Listed),
            Some(_) => Ok(()),
            None => {
                let base = (!self.has_bake(carried)).then(|| carried.base.clone());
                let info = SnapshotInfo { base, synced: true, ..carried.info.clone() };
                let visibility = if carried.is_listed { Visibility::Listed } else { Visibility::Hidden };
                self.store.insert_snapshot(&info, visibility, 0)
            }
        }
    }

    /// The base of a sandbox's disk here, after its snapshots have arrived.
    pub(crate) fn base_here(&self, id: &SnapshotId) -> Result<Option<Base>, StoreError> {
        Ok(self.store.snapshot(id)?.and_then(|(info, _)| info.base))
    }

    /// The listed snapshots of all workspaces.
    pub fn all_listed(&self) -> Result<Vec<SnapshotInfo>, StoreError> {
        let all = self.store.snapshots()?.into_iter();
        Ok(all.filter(|(_, visibility)| *visibility == Visibility::Listed).map(|(info, _)| info).collect())
    }
}

/// Snapshots whose files have come, and which are not this home's yet. If it is dropped, the files go.
pub(crate) struct Unloaded<'s, 'c> {
    snapshots: &'s Snapshots,
    cargo: &'c Cargo,
    files: Vec<&'c CargoFile>,
    work: WorkDir,
    /// No file may be swept before the rows are written.
    _held: Vec<HeldSnapshot>,
}

impl<'s> Unloaded<'s, '_> {
    fn read(&self, from: &mut impl Read) -> Result<(), ImportError> {
        for (place, file) in self.files.iter().enumerate() {
            let path = self.work.path().join(place.to_string());
            let mut hashed = Hashed::new(&mut *from);
            read_file(&mut hashed, &path, file.bytes)?;
            let seen = hashed.digest();
            let mut told = [0; 32];
            from.read_exact(&mut told)?;
            let is_layer = |digest: &String| digest_of(&path).is_ok_and(|found| found == *digest);
            if seen != told || !self.cargo.digest(file).as_ref().is_none_or(is_layer) {
                return Err(ImportError::Damaged("a file is not as it was written"));
            }
            // Machines run as other users.
            fs::set_permissions(&path, Permissions::from_mode(0o444)).map_err(ImportError::Io)?;
        }
        Ok(())
    }

    /// Makes the snapshots this home's. Nothing is swept until the guard is dropped, so that what needs the snapshots can be
    /// written first. Blocks.
    pub(crate) fn settle(self) -> Result<MutexGuard<'s, ()>, ImportError> {
        let snapshots = self.snapshots;
        // Bytes before names: a file in its place is trusted, also by the server that starts after a power failure.
        snapshots.sync().map_err(ImportError::Io)?;
        let no_sweep = snapshots.sweeping.blocking_lock();
        for (place, file) in self.files.iter().enumerate() {
            let target = file.kind.path(&snapshots.dir, &file.owner);
            private_directory(Files::new(&snapshots.dir, &file.owner).dir()).map_err(ImportError::Io)?;
            fs::rename(self.work.path().join(place.to_string()), target).map_err(ImportError::Io)?;
        }
        if !snapshots.lacks(self.cargo)?.is_empty() {
            return Err(ImportError::Damaged("a file that was here is gone"));
        }
        snapshots.sync().map_err(ImportError::Io)?;
        for carried in &self.cargo.snapshots {
            snapshots.adopt(carried)?;
        }
        Ok(no_sweep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_id() {
        let cargo = |owner: &str| -> Cargo {
            let file = serde_json::json!({ "owner": owner, "kind": "pages", "bytes": 1 });
            serde_json::from_value(serde_json::json!({ "snapshots": [], "files": [file] })).unwrap()
        };
        assert!(cargo("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").check().is_ok());
        for wrong in ["../../engines", "/etc", "", "0E0B5A3C-7A0B-4E57-9F52-0F7D6F1F3A11"] {
            assert!(matches!(cargo(wrong).check(), Err(ImportError::Damaged(_))), "{wrong}");
        }
    }
}
