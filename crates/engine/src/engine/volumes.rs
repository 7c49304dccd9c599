//! Copying a volume, for which the sandbox that writes it has to stop.

use super::instance::Engine;
use crate::model::{SandboxId, VolumeKind};
use crate::volume::{VolumeError, VolumeView, copy_file};

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
        let copied = match &copying.writer {
            None => copy_file(&copying.from, &copying.to).await,
            Some(writer) => match SandboxId::parse(writer).and_then(|writer| self.get(&writer)) {
                Some(sandbox) => sandbox.copy_volume(copying.from.clone(), copying.to.clone()).await,
                // The writer is still being made, or belongs to another engine.
                None => Err(VolumeError::InUse { name: name.to_owned(), by: writer.clone() }),
            },
        };
        self.parts.volumes.finish_copy(copying, copied)
    }
}
