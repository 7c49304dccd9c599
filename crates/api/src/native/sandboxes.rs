//! Sandboxes: create, list, show, end.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use sandling_engine::{EndReason, SandboxId};
use sandling_wire::{CreateSandbox, SandboxView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::context::RequestContext;
use crate::convert::IntoWire;
use crate::create_sandbox;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, delete))
}

/// List sandboxes
///
/// The sandboxes of the caller's workspace, oldest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", responses((status = 200, body = Vec<SandboxView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<SandboxView>> {
    app.engine.settled().await;
    let own = app.engine.list_of(caller.workspace().as_str());
    Json(own.into_iter().map(IntoWire::into_wire).collect())
}

/// Create a sandbox
///
/// The response comes when the guest is ready. Quotas are checked before anything is created: a 429 or 503 leaves
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

/// Show a sandbox
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
/// Its machine, memory and disk are removed before the response.
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
