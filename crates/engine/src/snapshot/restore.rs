//! A machine from a snapshot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_image::LoadError;
use sandling_vmm::machine::Layer;
use sandling_vmm::memory::Memory;

use super::info::{Files, Part, SnapshotInfo, Standing, Sum, disk_layer_name, top_name};
use super::save::digest_of;
use crate::bake::{self, BakeError, Baked};
use crate::engine::Engine;
use crate::made::Source;
use crate::process_cache::Cached;
use crate::template::root_layer;

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
pub(crate) struct Lowest {
    pub(crate) root: Layer,
    pub(crate) baked: Layer,
    pub(crate) memory: PathBuf,
}

impl SnapshotInfo {
    /// What a machine that is restored from it needs.
    pub(crate) async fn source(&self, engine: &Arc<Engine>) -> Result<Source, RestoreError> {
        let hardware = engine.hardware_of(self.vcpus, self.memory_mib);
        if !bake::can_restore(&self.bake, &hardware) {
            return Err(RestoreError::OtherHardware(self.bake.clone()));
        }
        let snapshots = engine.config.home.snapshots();
        let files = Files::new(&snapshots, &self.id);
        let Lowest { root, baked, memory } = self.lowest(engine)?;
        self.check_files(&snapshots)?;
        let mut layers = vec![root, baked];
        layers.extend(
            self.disk.iter().map(|id| Layer { name: disk_layer_name(id), path: Files::new(&snapshots, id).disk() }),
        );
        let memory = Memory {
            base: memory,
            layers: self.memory.iter().map(|id| Files::new(&snapshots, id).pages()).collect(),
            map: Some(files.map()),
            library: engine.maker.library.clone(),
        };
        let process = engine.maker.process_cache.load(files.dir());
        let cached = process.map(|process| Cached { process, memory: memory.clone(), overlay: files.overlay() });
        Ok(Source {
            hardware,
            memory,
            state: files.state(),
            layers,
            overlay: files.overlay(),
            disk_mib: self.disk_mib,
            plugs: Vec::new(),
            volume_mib: 0,
            disk_name: top_name(&self.id),
            cached,
        })
    }

    /// Whether its files are as they were written, as far as that can be told in no time: the small ones by their
    /// digests, every layer of memory and disk and every volume by its size. A machine would not notice that the end of
    /// one is missing until it reads it. What has the right size and other bytes is found by
    /// [`verify`](Self::verify).
    fn check_files(&self, snapshots: &Path) -> Result<(), RestoreError> {
        let files = Files::new(snapshots, &self.id);
        for (what, path, digest) in
            [("map", files.map(), &self.digests.map), ("state", files.state(), &self.digests.state)]
        {
            let written = std::fs::read(path).is_ok_and(|bytes| blake3::hash(&bytes).to_hex().as_str() == digest);
            if !written {
                return Err(RestoreError::Damaged(what));
            }
        }
        let size = |path: PathBuf| path.symlink_metadata().map(|file| file.len()).ok();
        for (part, path, sum) in self.layer_files(snapshots) {
            if size(path) != Some(sum.bytes) {
                return Err(RestoreError::Damaged(part.name()));
            }
        }
        let mut copied = self.volumes.iter().filter(|volume| volume.copied);
        let whole = copied.all(|saved| size(files.volume(saved.was.slot)) == Some(u64::from(saved.was.size_mib) << 20));
        if whole { Ok(()) } else { Err(RestoreError::Damaged("volume")) }
    }

    /// Whether each of its layers is byte for byte what was written. Reads all of them, so it is done where that is done
    /// anyway, when it is exported; an import does the same with what came.
    pub(crate) fn verify(&self, snapshots: &Path) -> Result<(), RestoreError> {
        self.check_files(snapshots)?;
        for (part, path, sum) in self.layer_files(snapshots) {
            if !digest_of(&path).is_ok_and(|digest| digest == sum.digest) {
                return Err(RestoreError::Damaged(part.name()));
            }
        }
        Ok(())
    }

    /// Its layers' files of which it is known what they must be.
    fn layer_files(&self, snapshots: &Path) -> impl Iterator<Item = (Part, PathBuf, Sum)> {
        let layers = [Part::Memory, Part::Disk].into_iter().flat_map(|part| {
            let layers = part.layers(self).iter();
            layers.map(move |id| (part, id))
        });
        layers.filter_map(|(part, id)| Some((part, Files::new(snapshots, id).layer(part), self.sum(part, id)?)))
    }

    /// What everything above it was saved over: a bake of a template here, or one that came with it.
    pub(crate) fn lowest(&self, engine: &Engine) -> Result<Lowest, RestoreError> {
        if let Some(base) = &self.base {
            let files = Files::new(&engine.config.home.snapshots(), &base.id);
            return Ok(Lowest {
                root: Layer { name: base.root.clone(), path: files.base_root() },
                baked: Layer { name: base.baked.clone(), path: files.disk() },
                memory: files.base_memory(),
            });
        }
        let image = engine.images.load_image(&self.image)?;
        let baked = Baked::load(&image.baked_dir(&self.bake))?;
        let baked = baked.ok_or_else(|| RestoreError::OtherHardware(self.bake.clone()))?;
        Ok(Lowest {
            root: root_layer(&image),
            baked: Layer { name: baked.layer_name(), path: baked.disk() },
            memory: baked.memory(),
        })
    }

    /// What a machine that was restored from it stands on.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            restored: Some(self.id.clone()),
            saved: Some(self.id.clone()),
            disk: self.disk.clone(),
            top: Some(top_name(&self.id)),
            moving: None,
            base: self.base.clone(),
        }
    }
}
