//! Sandboxes: create, list, show, end.

use axum::extract::State;
use sandling_engine::{EndReason, SandboxId};
use sandling_service::StartDirectory;
use sandling_wire::{CreateSandbox, CreatedSandbox, SandboxView};

use crate::create_sandbox;
use crate::durability::sandbox_view;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, delete))
}

/// List sandboxes
///
/// The sandboxes of the caller's workspace, oldest first.
#[utoipa::path(get, path = "/v1/sandboxes", responses((status = 200, body = Vec<SandboxView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<SandboxView>> {
    app.engine.settled().await;
    let own = app.engine.list_of(caller.workspace().as_str());
    Json(own.into_iter().map(|info| sandbox_view(&app, info)).collect())
}

/// Create a sandbox
///
/// The response comes when the guest is ready. Quotas are checked before anything is created: a 429 or 503 leaves
/// nothing behind. An `Idempotency-Key` makes a retry safe. With `run`, the response comes when the code has ended, and says
/// how. If the code fails, the sandbox still exists, and the status is still 201.
#[utoipa::path(
    post, path = "/v1/sandboxes", request_body = Option<CreateSandbox>,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[ -~]{1,255}$")),
    responses((status = 201, body = CreatedSandbox)),
)]
async fn create(call: Call<Run>, headers: HeaderMap, body: JsonBody<CreateSandbox>) -> Result<Response, ApiError> {
    create_sandbox::answer(&call.app, call.workspace(), &call.context, &headers, body, StartDirectory::Workspace).await
}

/// Show a sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}", responses((status = 200, body = SandboxView)))]
async fn get(call: Call<Read>) -> Result<Json<SandboxView>, ApiError> {
    if let Some(info) = SandboxId::parse(&call.item).and_then(|id| call.caller.unreadable(&call.app, &id)) {
        return Ok(Json(info.into_wire()));
    }
    Ok(Json(sandbox_view(&call.app, call.caller.sandbox(&call.app, &call.item).await?.info())))
}

/// End a sandbox
///
/// Its machine, memory and disk are removed before the response.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", responses((status = 204)))]
async fn delete(call: Call<Run>) -> Result<StatusCode, ApiError> {
    if let Some(id) = SandboxId::parse(&call.item)
        && call.app.engine.remove_unreadable(call.workspace().as_str(), &id).await?
    {
        return Ok(StatusCode::NO_CONTENT);
    }
    call.caller.sandbox(&call.app, &call.item).await?.end(EndReason::Requested).await?;
    Ok(StatusCode::NO_CONTENT)
}
