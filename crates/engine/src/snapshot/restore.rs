//! What a machine is restored from, for a snapshot.

use std::path::{Path, PathBuf};

use sandling_image::{Image, LoadError};
use sandling_vmm::machine::Layer;
use sandling_vmm::memory::Memory;

use super::files::Files;
use super::snapshots::Snapshots;
use crate::hashing::digest_of;
use crate::machine::{BakeError, Baked, Kernel, PagesWritten, Source, Start, can_restore, root_layer};
use crate::model::{Part, SandboxInfo, SnapshotInfo, Standing, Sum, disk_layer_name, top_name};
use crate::process_cache::Cached;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the template's image that the snapshot stands on cannot be used")]
    Image(#[from] LoadError),
    #[error("the template's bake that the snapshot stands on cannot be used")]
    Bake(#[from] BakeError),
    #[error("the snapshot was made with another emulator or CPU model ({0}) than this host has")]
    OtherHardware(String),
    #[error("the snapshot's file {0} is not as it was written")]
    Damaged(&'static str),
}

/// A bake's files.
pub(crate) struct BakeFiles {
    pub(crate) root: Layer,
    pub(crate) baked: Layer,
    pub(crate) memory: PathBuf,
}

impl Snapshots {
    /// What a machine that is restored from it needs.
    pub(crate) fn source(&self, snapshot: &SnapshotInfo) -> Result<Source, RestoreError> {
        self.check_files(snapshot)?;
        self.unchecked_source(snapshot, None)
    }

    /// What a machine needs that boots from the disk of a snapshot. Its memory is that of the bake, which its kernel
    /// overwrites, so that later saves of the machine can be restored over the bake like any other.
    pub(crate) fn boot_source(&self, snapshot: &SnapshotInfo, image: &Image) -> Result<Source, RestoreError> {
        self.check_layers(snapshot)?;
        let source = self.unchecked_source(snapshot, None)?;
        let memory = Memory::base(source.memory.base, source.memory.library);
        Ok(Source { memory, start: Start::Kernel(Kernel::of(image)), cached: Ok(None), ..source })
    }

    /// The image that a sandbox boots with.
    pub(crate) fn image(&self, info: &SandboxInfo) -> Result<Image, RestoreError> {
        let id = info.image.parse().map_err(|_| RestoreError::OtherHardware(info.bake.clone()))?;
        Ok(self.machines.images.load_image(&id)?)
    }

    /// The image that sandboxes of a snapshot without memory boot with.
    pub(crate) fn image_of(&self, snapshot: &SnapshotInfo) -> Result<Image, RestoreError> {
        Ok(self.machines.images.load_image(&snapshot.image)?)
    }

    /// The same for a snapshot whose files were written by this engine a moment ago, or still are.
    pub(crate) fn fresh_source(&self, snapshot: &SnapshotInfo, pages: PagesWritten) -> Result<Source, RestoreError> {
        self.unchecked_source(snapshot, Some(pages))
    }

    fn unchecked_source(
        &self,
        snapshot: &SnapshotInfo,
        unwritten: Option<PagesWritten>,
    ) -> Result<Source, RestoreError> {
        let hardware = self.machines.hardware(snapshot.vcpus, snapshot.memory_mib);
        if !can_restore(&snapshot.bake, &hardware) {
            return Err(RestoreError::OtherHardware(snapshot.bake.clone()));
        }
        let files = Files::new(&self.dir, &snapshot.id);
        let BakeFiles { root, baked, memory } = self.bake_files(snapshot)?;
        let mut layers = vec![root, baked];
        layers.extend(
            snapshot.disk.iter().map(|id| Layer { name: disk_layer_name(id), path: Files::new(&self.dir, id).disk() }),
        );
        let memory = Memory {
            base: memory,
            layers: snapshot.memory.iter().map(|id| Files::new(&self.dir, id).pages()).collect(),
            map: Some(files.map()),
            library: self.machines.factory.library.clone(),
        };
        let process = self.machines.factory.process_cache.load(files.dir());
        let of_this = |process| Cached { process, memory: memory.clone(), overlay: files.overlay() };
        let cached = process.map(|process| process.map(of_this));
        Ok(Source {
            hardware,
            memory,
            start: Start::DeviceState(files.state()),
            layers,
            overlay: files.overlay(),
            disk_mib: snapshot.disk_mib,
            plugs: Vec::new(),
            volume_mib: 0,
            disk_name: top_name(&snapshot.id),
            cached,
            unwritten,
        })
    }

    /// Whether its files are as they were written, as far as that can be told in no time: the small ones by their
    /// digests, every layer of memory and disk and every volume by its size. A machine would not notice that the end of
    /// one is missing until it reads it. What has the right size and other bytes is found by
    /// [`verify`](Self::verify).
    pub(super) fn check_files(&self, snapshot: &SnapshotInfo) -> Result<(), RestoreError> {
        let files = Files::new(&self.dir, &snapshot.id);
        for (what, path, digest) in
            [("map", files.map(), &snapshot.digests.map), ("state", files.state(), &snapshot.digests.state)]
        {
            let written = std::fs::read(path).is_ok_and(|bytes| blake3::hash(&bytes).to_hex().as_str() == digest);
            if !written {
                return Err(RestoreError::Damaged(what));
            }
        }
        self.check_layers(snapshot)?;
        let mut copied = snapshot.volumes.iter().filter(|volume| volume.copied);
        let whole =
            copied.all(|saved| size(&files.volume(saved.was.slot)) == Some(u64::from(saved.was.size_mib) << 20));
        if whole { Ok(()) } else { Err(RestoreError::Damaged("volume")) }
    }

    fn check_layers(&self, snapshot: &SnapshotInfo) -> Result<(), RestoreError> {
        match self.layer_files(snapshot).find(|(_, path, sum)| size(path) != Some(sum.bytes)) {
            Some((part, ..)) => Err(RestoreError::Damaged(part.name())),
            None => Ok(()),
        }
    }

    /// Whether each of its layers is byte for byte what was written. Reads all of them, so it is done where that is done
    /// anyway, when it is exported; an import does the same with what came.
    pub(super) fn verify(&self, snapshot: &SnapshotInfo) -> Result<(), RestoreError> {
        self.check_files(snapshot)?;
        for (part, path, sum) in self.layer_files(snapshot) {
            if !digest_of(&path).is_ok_and(|digest| digest == sum.digest) {
                return Err(RestoreError::Damaged(part.name()));
            }
        }
        Ok(())
    }

    /// Its layers' files of which it is known what they must be.
    fn layer_files(&self, snapshot: &SnapshotInfo) -> impl Iterator<Item = (Part, PathBuf, Sum)> {
        let layers = [Part::Memory, Part::Disk].into_iter().flat_map(|part| {
            let layers = part.layers(snapshot).iter();
            layers.map(move |id| (part, id))
        });
        layers.filter_map(|(part, id)| Some((part, Files::new(&self.dir, id).layer(part), snapshot.sum(part, id)?)))
    }

    /// What everything above it was saved over: a bake of a template here, or one that came with it.
    pub(super) fn bake_files(&self, snapshot: &SnapshotInfo) -> Result<BakeFiles, RestoreError> {
        if let Some(base) = &snapshot.base {
            let files = Files::new(&self.dir, &base.id);
            return Ok(BakeFiles {
                root: Layer { name: base.root.clone(), path: files.base_root() },
                baked: Layer { name: base.baked.clone(), path: files.disk() },
                memory: files.base_memory(),
            });
        }
        let image = self.machines.images.load_image(&snapshot.image)?;
        let baked = Baked::load(&image.baked_dir(&snapshot.bake))?;
        let baked = baked.ok_or_else(|| RestoreError::OtherHardware(snapshot.bake.clone()))?;
        Ok(BakeFiles {
            root: root_layer(&image),
            baked: Layer { name: baked.layer_name(), path: baked.disk() },
            memory: baked.memory(),
        })
    }

    /// The name of the lowest layer of a sandbox's disk that is not a snapshot's: that of its bake.
    pub(crate) fn bake_layer(&self, info: &SandboxInfo, standing: &Standing) -> Result<String, RestoreError> {
        if let Some(base) = &standing.base {
            return Ok(base.baked.clone());
        }
        let other = || RestoreError::OtherHardware(info.bake.clone());
        let image = info.image.parse().map_err(|_| other())?;
        let image = self.machines.images.load_image(&image)?;
        Ok(Baked::load(&image.baked_dir(&info.bake))?.ok_or_else(other)?.layer_name())
    }
}

fn size(path: &Path) -> Option<u64> {
    path.symlink_metadata().map(|file| file.len()).ok()
}
