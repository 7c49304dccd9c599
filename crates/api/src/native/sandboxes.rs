//! Sandboxes: make, list, look at, end.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use sandling_engine::{CreateSpec, EndReason, SandboxId, SandboxInfo};
use sandling_service::{Resources, WorkspaceName};
use sandling_wire::{CreateSandbox, SandboxView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::context::RequestContext;
use crate::convert::IntoWire;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::native::templates;
use crate::{create_sandbox, volume_files};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, delete))
}

/// List sandboxes
///
/// Those of the caller's workspace, oldest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", responses((status = 200, body = Vec<SandboxView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<SandboxView>> {
    app.engine.settled().await;
    let own = app.engine.list_of(caller.workspace().as_str());
    Json(own.into_iter().map(IntoWire::into_wire).collect())
}

/// Make a sandbox
///
/// The answer comes when its guest has answered. Quotas are judged before anything is made: a 429 or 503 leaves
/// nothing behind. An `Idempotency-Key` makes a retry safe.
#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes", request_body = Option<CreateSandbox>,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[ -~]{1,255}$")),
    responses((status = 201, body = SandboxView)),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    body: JsonBody<CreateSandbox>,
) -> Result<Response, ApiError> {
    create_sandbox::answer(&app, caller.workspace(), &context, &headers, body).await
}

/// Makes a sandbox, if the workspace's quota has room for it and a turn comes.
pub(crate) async fn make(app: &Arc<App>, workspace: &WorkspaceName, spec: CreateSpec) -> Result<SandboxInfo, ApiError> {
    app.engine.settled().await;
    for volume in &spec.volumes {
        volume_files::close(app, workspace.as_str(), &volume.name).await?;
    }
    let wish = match &spec.from_snapshot {
        None => wish(app, workspace, &spec)?,
        Some(id) => {
            let found = app.engine.find_snapshot(workspace.as_str(), id)?;
            let snapshot = found.ok_or_else(|| ApiError::not_found("snapshot"))?;
            let copies = snapshot.volumes.iter().map(|volume| volume.was.size_mib).sum::<u32>();
            taken(1, snapshot.vcpus, snapshot.memory_mib, snapshot.disk_mib + copies)
        }
    };
    let place = app.access.admit(workspace, &wish, || living(app, workspace))?;
    let turn = app.turns.take().await?;
    let sandbox = app.engine.create(spec).await?;
    drop((turn, place));
    Ok(sandbox.info())
}

/// What a sandbox would take of the quota.
fn wish(app: &App, workspace: &WorkspaceName, spec: &CreateSpec) -> Result<Resources, ApiError> {
    let sizes = templates::sizes(app, workspace.as_str(), &spec.template)?;
    Ok(Resources {
        sandboxes: 1,
        vcpus: spec.vcpus.unwrap_or(sizes.vcpus).into(),
        memory_mib: spec.memory_mib.unwrap_or(sizes.memory_mib).into(),
        disk_mib: spec.disk_mib.unwrap_or(sizes.disk_mib).into(),
    })
}

/// What a workspace's sandboxes, volumes and snapshots take.
pub(crate) fn living(app: &App, workspace: &WorkspaceName) -> Resources {
    let own = app.engine.list_of(workspace.as_str());
    let sandboxes: Resources = own.into_iter().map(|info| taken(1, info.vcpus, info.memory_mib, info.disk_mib)).sum();
    let disk_mib = app.engine.volume_mib(workspace.as_str()) + app.engine.stored_mib(workspace.as_str());
    sandboxes + Resources { disk_mib, ..Resources::default() }
}

/// What so many sandboxes of one size take of a quota.
pub(crate) fn taken(count: u32, vcpus: u32, memory_mib: u32, disk_mib: u32) -> Resources {
    let all = |each: u32| u64::from(each) * u64::from(count);
    Resources { sandboxes: count.into(), vcpus: all(vcpus), memory_mib: all(memory_mib), disk_mib: all(disk_mib) }
}

/// Look at a sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<SandboxView>, ApiError> {
    if let Some(info) = SandboxId::parse(&id).and_then(|id| caller.unreadable(&app, &id)) {
        return Ok(Json(info.into_wire()));
    }
    Ok(Json(caller.sandbox(&app, &id).await?.info().into_wire()))
}

/// End a sandbox
///
/// Its machine, memory and disk are gone when the answer comes.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 204)),
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    if let Some(id) = SandboxId::parse(&id)
        && app.engine.remove_unreadable(caller.workspace().as_str(), &id).await?
    {
        return Ok(StatusCode::NO_CONTENT);
    }
    caller.sandbox(&app, &id).await?.end(EndReason::Requested).await?;
    Ok(StatusCode::NO_CONTENT)
}
