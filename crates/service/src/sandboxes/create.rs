//! Creating a sandbox: quota, then what the engine prepares, then the limit on simultaneous creates, then the machine.

use std::sync::Arc;

use sandling_engine::store::StoreError;
use sandling_engine::{BootMode, CreateSpec, Engine, Sandbox, TRACE_TARGET};
use tracing::field::Empty;
use tracing::{Instrument, info_span};

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

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Creates a sandbox if the workspace's quota allows it.
    pub async fn create(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        spec: CreateSpec,
    ) -> Result<Arc<Sandbox>, CreateError> {
        let (sandboxes, workspace) = (self.clone(), workspace.clone());
        // In a task of its own: what is being made counts against the quota even if the client goes away.
        let span = info_span!(
            target: TRACE_TARGET,
            "create",
            sandling.template = spec.template,
            sandling.sandbox.id = Empty,
            sandling.boot_mode = Empty,
        );
        let creating = tokio::spawn(async move { sandboxes.create_inner(&workspace, spec).await }.instrument(span));
        creating.await.unwrap_or(Err(sandling_engine::CreateError::Closing.into()))
    }

    async fn create_inner(&self, workspace: &WorkspaceName, spec: CreateSpec) -> Result<Arc<Sandbox>, CreateError> {
        self.engine.settled().await;
        for volume in &spec.volumes {
            self.release_volume(workspace, &volume.name).await?;
        }
        let needed = self.needed_by(workspace, &spec)?;
        // Before others make room: this one must stay.
        self.engine.machines().mark_used(workspace.as_str(), &spec.template);
        let reservation = self.with_room(workspace, || self.reserve(workspace, &needed)).await?;
        // Without a slot: this may wait for a bake, which other workspaces must not wait for.
        let prepared = self.engine.prepare(spec).instrument(info_span!(target: TRACE_TARGET, "create.prepare")).await?;
        let queueing = self.create_limiter.acquire(workspace);
        let slot = queueing.instrument(info_span!(target: TRACE_TARGET, "create.queue")).await?;
        let sandbox = self.engine.create_prepared(prepared).await?;
        let span = tracing::Span::current();
        span.record("sandling.sandbox.id", sandbox.id().as_str());
        span.record("sandling.boot_mode", boot_mode(sandbox.info().boot_mode));
        drop((slot, reservation));
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
        let snapshot = self.engine.snapshots().find_usable(workspace.as_str(), id)?.ok_or(CreateError::NoSnapshot)?;
        let copies = snapshot.volumes.iter().map(|volume| volume.was.size_mib).sum::<u32>();
        Ok(sandboxes_of_size(1, snapshot.vcpus, snapshot.memory_mib, snapshot.disk_mib + copies))
    }
}

fn boot_mode(mode: BootMode) -> &'static str {
    match mode {
        BootMode::Standby => "standby",
        BootMode::Restore => "restore",
        BootMode::Boot => "boot",
    }
}
