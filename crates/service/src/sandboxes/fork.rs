//! Forking a sandbox within its workspace's quota.

use std::sync::Arc;

use sandling_engine::{Fork, ForkSpec, OnVolumes, Sandbox, TRACE_TARGET};
use tracing::{Instrument, info_span};

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
        // The children are of the same template, but not for the same purpose.
        spec.settings.process = info.settings.process.clone();
        (spec.settings.for_build, spec.settings.for_volume, spec.settings.failover) = (None, None, None);
        let count = u32::try_from(spec.children).unwrap_or(u32::MAX);
        let copies_volumes = spec.volumes.is_some_and(|volumes| volumes != OnVolumes::Detach);
        let copies = info.volumes.iter().filter(|_| copies_volumes).map(|volume| volume.size_mib).sum::<u32>();
        let requested = sandboxes_of_size(count, info.vcpus, info.memory_mib, info.disk_mib + copies);
        let reservation = self.reserve(workspace, &requested).await?;
        let slot = self.create_limiter.acquire(workspace).await?;
        let span = info_span!(
            target: TRACE_TARGET,
            "fork",
            sandling.sandbox.id = %parent.id(),
            sandling.fork.children = spec.children,
        );
        let forks = self.engine.fork(parent, spec).instrument(span).await?;
        drop((slot, reservation));
        Ok(forks)
    }
}
