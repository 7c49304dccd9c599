//! Changes to a sandbox's file system that need no content.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Run};
use crate::error::ApiError;
use crate::extract::{JsonBody, Params, Parts};
use crate::wire::files::{ChmodRequest, MakeDirRequest, MoveRequest, RemoveParams, checked, permissions};

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
    sandbox.remove(&checked(params.path)?, params.recursive.unwrap_or(true)).await?;
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
    sandbox.make_dir(&checked(request.path)?, mode, request.parents.unwrap_or(true)).await?;
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
    sandbox.move_path(&checked(body.value.from)?, &checked(body.value.to)?).await?;
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
    sandbox.chmod(&checked(body.value.path)?, permissions(&body.value.mode)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
