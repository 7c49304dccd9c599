//! A machine from a snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use sandling_image::LoadError;
use sandling_vmm::machine::Layer;
use sandling_vmm::memory::Memory;

use super::info::{Files, SnapshotInfo, Standing, disk_layer_name};
use crate::bake::{self, BakeError, Baked};
use crate::engine::Engine;
use crate::made::Source;
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
        if bake::key(&hardware) != self.bake {
            return Err(RestoreError::OtherHardware(self.bake.clone()));
        }
        let snapshots = engine.config.home.snapshots();
        let files = Files::new(&snapshots, &self.id);
        let Lowest { root, baked, memory } = self.lowest(engine)?;
        let whole = |path: std::path::PathBuf| path.symlink_metadata().is_ok_and(|file| file.len() > 0);
        let disk = self.disk.last().unwrap_or(&self.id);
        if !whole(files.map()) || !whole(files.state()) || !whole(Files::new(&snapshots, disk).disk()) {
            return Err(RestoreError::Damaged("map, state or disk"));
        }
        let mut layers = vec![root, baked];
        layers.extend(
            self.disk.iter().map(|id| Layer { name: disk_layer_name(id), path: Files::new(&snapshots, id).disk() }),
        );
        Ok(Source {
            hardware,
            memory: Memory {
                base: memory,
                layers: self.memory.iter().map(|id| Files::new(&snapshots, id).pages()).collect(),
                map: Some(files.map()),
                library: engine.maker.library.clone(),
            },
            state: files.state(),
            layers,
            overlay: files.overlay(),
            disk_mib: self.disk_mib,
            plugs: Vec::new(),
            volume_mib: 0,
        })
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
            top: None,
            moving: None,
            base: self.base.clone(),
        }
    }
}
