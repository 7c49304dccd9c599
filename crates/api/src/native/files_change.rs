//! Changes to a sandbox's file system that need no content.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use sandling_engine::Cause;
use sandling_wire::{ChmodRequest, MakeDirRequest, MoveRequest, RemoveParams};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Run};
use crate::convert::files::{checked, permissions};
use crate::error::ApiError;
use crate::extract::{JsonBody, Params, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(remove))
        .routes(routes!(make_dir))
        .routes(routes!(move_path))
        .routes(routes!(chmod))
}

/// Remove a file or directory
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/fs", tag = "files", params(("id" = String, Path), RemoveParams),
    responses((status = 204)),
)]
async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    Params(params): Params<RemoveParams>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let path = checked(params.path)?;
    app.engine.before(&sandbox, Cause::Files, &format!("remove {path}")).await?;
    sandbox.remove(&path, params.recursive.unwrap_or(true)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make a directory
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fs/mkdir", tag = "files", params(("id" = String, Path)),
    request_body = MakeDirRequest,
    responses((status = 204)),
)]
async fn make_dir(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<MakeDirRequest>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let request = body.value;
    let mode = request.mode.as_deref().map(permissions).transpose()?;
    let path = checked(request.path)?;
    app.engine.before(&sandbox, Cause::Files, &format!("make {path}")).await?;
    sandbox.make_dir(&path, mode, request.parents.unwrap_or(true)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move a file or directory
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fs/move", tag = "files", params(("id" = String, Path)),
    request_body = MoveRequest,
    responses((status = 204)),
)]
async fn move_path(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<MoveRequest>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let (from, to) = (checked(body.value.from)?, checked(body.value.to)?);
    app.engine.before(&sandbox, Cause::Files, &format!("move {from} to {to}")).await?;
    sandbox.move_path(&from, &to).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change permissions
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fs/chmod", tag = "files", params(("id" = String, Path)),
    request_body = ChmodRequest,
    responses((status = 204)),
)]
async fn chmod(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<ChmodRequest>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let (path, mode) = (checked(body.value.path)?, permissions(&body.value.mode)?);
    app.engine.before(&sandbox, Cause::Files, &format!("change {path}")).await?;
    sandbox.chmod(&path, mode).await?;
    Ok(StatusCode::NO_CONTENT)
}
