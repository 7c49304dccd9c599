//! Releasing a volume from the machine that serves its files.

use sandling_engine::store::StoreError;
use sandling_engine::{ChangeError, EndReason, SandboxId};

use super::create::Sandboxes;
use crate::workspaces::WorkspaceName;

#[derive(Debug, thiserror::Error)]
pub enum ReleaseVolumeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    End(#[from] ChangeError),
}

impl Sandboxes {
    /// Ends the machine that serves a volume's files, if there is one, because a sandbox needs the volume.
    pub async fn release_volume(&self, workspace: &WorkspaceName, name: &str) -> Result<(), ReleaseVolumeError> {
        let Some(volume) = self.engine.volumes().find(workspace.as_str(), name)? else { return Ok(()) };
        for id in volume.attached.iter().filter_map(|(id, _)| SandboxId::parse(id)) {
            if let Some(sandbox) = self.engine.find(workspace.as_str(), &id).await
                && sandbox.info().settings.for_volume.is_some()
            {
                sandbox.end(EndReason::Requested).await?;
            }
        }
        Ok(())
    }
}
