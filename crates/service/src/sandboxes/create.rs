//! Creating a sandbox: quota, then the limit on simultaneous creates, then the engine.

use std::sync::Arc;

use sandling_engine::store::StoreError;
use sandling_engine::{CreateSpec, Engine, Sandbox};

use super::release_volume::ReleaseVolumeError;
use super::template::{UnknownTemplate, template_size};
use super::usage::sandboxes_of_size;
use crate::admission::{Admission, AdmitError, Resources};
use crate::create_limiter::{Busy, CreateLimiter};
use crate::workspaces::WorkspaceName;

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Template(#[from] UnknownTemplate),
    #[error("snapshot not found")]
    NoSnapshot,
    #[error(transparent)]
    Volume(#[from] ReleaseVolumeError),
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Engine(#[from] sandling_engine::CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes sandboxes for the workspaces of a home.
pub struct Sandboxes {
    pub(super) engine: Arc<Engine>,
    pub(super) admission: Arc<Admission>,
    pub(super) create_limiter: Arc<CreateLimiter>,
}

impl Sandboxes {
    pub(crate) fn new(engine: Arc<Engine>, admission: Arc<Admission>, create_limiter: Arc<CreateLimiter>) -> Self {
        Self { engine, admission, create_limiter }
    }

    /// Creates a sandbox if the workspace's quota allows it.
    pub async fn create(&self, workspace: &WorkspaceName, spec: CreateSpec) -> Result<Arc<Sandbox>, CreateError> {
        self.engine.settled().await;
        for volume in &spec.volumes {
            self.release_volume(workspace, &volume.name).await?;
        }
        let reservation = self.reserve(workspace, &self.needed_by(workspace, &spec)?)?;
        let permit = self.create_limiter.acquire().await?;
        let sandbox = self.engine.create(spec).await?;
        drop((permit, reservation));
        Ok(sandbox)
    }

    fn needed_by(&self, workspace: &WorkspaceName, spec: &CreateSpec) -> Result<Resources, CreateError> {
        let Some(id) = &spec.from_snapshot else {
            let size = template_size(&self.engine, workspace.as_str(), &spec.template)?;
            return Ok(sandboxes_of_size(
                1,
                spec.vcpus.unwrap_or(size.vcpus),
                spec.memory_mib.unwrap_or(size.memory_mib),
                spec.disk_mib.unwrap_or(size.disk_mib),
            ));
        };
        let snapshot = self.engine.snapshots().find(workspace.as_str(), id)?.ok_or(CreateError::NoSnapshot)?;
        let copies = snapshot.volumes.iter().map(|volume| volume.was.size_mib).sum::<u32>();
        Ok(sandboxes_of_size(1, snapshot.vcpus, snapshot.memory_mib, snapshot.disk_mib + copies))
    }
}
