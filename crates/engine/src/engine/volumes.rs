//! Copying a volume, for which the sandbox that writes it has to stop.

use super::instance::Engine;
use crate::model::{SandboxId, VolumeKind};
use crate::volume::{Copying, VolumeError, VolumeMoment, VolumeView, copy_file};

impl Engine {
    /// Copies a volume under another name. If a sandbox writes it, the copy is of one moment, for which the sandbox
    /// stops.
    pub async fn copy_volume(
        &self,
        workspace: &str,
        name: &str,
        copy: &str,
        kind: VolumeKind,
    ) -> Result<VolumeView, VolumeError> {
        let copying = self.parts.volumes.begin_copy(workspace, name, copy, kind)?;
        let copied = self.copy_content(name, &copying).await;
        self.parts.volumes.finish_copy(copying, copied)
    }

    /// What is on a volume at one moment, for another home. A caller that may be cancelled runs this in a task of its own.
    pub async fn volume_moment(&self, workspace: &str, name: &str) -> Result<VolumeMoment, VolumeError> {
        let copying = self.parts.volumes.begin_moment(workspace, name)?;
        let copied = self.copy_content(name, &copying).await;
        self.parts.volumes.finish_moment(copying, copied)
    }

    async fn copy_content(&self, name: &str, copying: &Copying) -> Result<(), VolumeError> {
        let Some(writer) = &copying.writer else { return copy_file(&copying.from, &copying.to).await };
        match SandboxId::parse(writer).and_then(|writer| self.get(&writer)) {
            Some(sandbox) => sandbox.copy_volume(copying.from.clone(), copying.to.clone()).await,
            // The writer is still being made, or belongs to another engine.
            None => Err(VolumeError::InUse { name: name.to_owned(), by: writer.clone() }),
        }
    }
}
