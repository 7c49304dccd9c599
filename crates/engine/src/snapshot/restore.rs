//! A machine from a snapshot.

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

impl SnapshotInfo {
    /// What a machine that is restored from it needs.
    pub(crate) async fn source(&self, engine: &Arc<Engine>) -> Result<Source, RestoreError> {
        let image = engine.images.load_image(&self.image)?;
        let hardware = engine.hardware(&image.manifest.recipe, Some(self.vcpus), Some(self.memory_mib));
        if bake::key(&hardware) != self.bake {
            return Err(RestoreError::OtherHardware(self.bake.clone()));
        }
        let baked = Baked::load(&image.baked_dir(&self.bake))?;
        let baked = baked.ok_or_else(|| RestoreError::OtherHardware(self.bake.clone()))?;
        let snapshots = engine.config.home.snapshots();
        let files = Files::new(&snapshots, &self.id);
        let whole = |path: std::path::PathBuf| path.symlink_metadata().is_ok_and(|file| file.len() > 0);
        if !whole(files.map()) || !whole(files.state()) || !whole(files.disk()) {
            return Err(RestoreError::Damaged("map, state or disk"));
        }
        let mut layers = vec![root_layer(&image), Layer { name: baked.layer_name(), path: baked.disk() }];
        layers.extend(
            self.disk.iter().map(|id| Layer { name: disk_layer_name(id), path: Files::new(&snapshots, id).disk() }),
        );
        Ok(Source {
            hardware,
            memory: Memory {
                base: baked.memory(),
                layers: self.memory.iter().map(|id| Files::new(&snapshots, id).pages()).collect(),
                map: Some(files.map()),
                library: engine.maker.library.clone(),
            },
            state: files.state(),
            layers,
            overlay: files.overlay(),
            disk_mib: self.disk_mib,
        })
    }

    /// What a machine that was restored from it stands on.
    pub(crate) fn standing(&self) -> Standing {
        Standing { restored: Some(self.id.clone()), saved: Some(self.id.clone()), disk: self.disk.clone(), top: None }
    }
}
