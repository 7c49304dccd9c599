//! Forking a sandbox within its workspace's quota.

use std::sync::Arc;

use sandling_engine::{Fork, ForkSpec, OnVolumes, Sandbox};

use super::create::Sandboxes;
use super::usage::sandboxes_of_size;
use crate::admission::AdmitError;
use crate::create_limiter::Busy;
use crate::workspaces::WorkspaceName;

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Engine(#[from] sandling_engine::ForkError),
}

impl Sandboxes {
    /// Makes all children, or none, if the workspace's quota allows them.
    pub async fn fork(
        &self,
        workspace: &WorkspaceName,
        parent: &Arc<Sandbox>,
        mut spec: ForkSpec,
    ) -> Result<Vec<Fork>, ForkError> {
        let info = parent.info();
        // The children are of the same template.
        spec.settings.process = info.settings.process.clone();
        let count = u32::try_from(spec.children).unwrap_or(u32::MAX);
        let copies_volumes = spec.volumes.is_some_and(|volumes| volumes != OnVolumes::Detach);
        let copies = info.volumes.iter().filter(|_| copies_volumes).map(|volume| volume.size_mib).sum::<u32>();
        let requested = sandboxes_of_size(count, info.vcpus, info.memory_mib, info.disk_mib + copies);
        let reservation = self.reserve(workspace, &requested)?;
        let permit = self.create_limiter.acquire().await?;
        let forks = self.engine.fork(parent, spec).await?;
        drop((permit, reservation));
        Ok(forks)
    }
}
