//! Changes to a sandbox's file system that need no content.

use sandling_engine::Cause;
use sandling_wire::{ChmodRequest, MakeDirRequest, MoveRequest, RemoveParams};

use crate::convert::files::{permissions, resolved};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(remove))
        .routes(routes!(make_dir))
        .routes(routes!(move_path))
        .routes(routes!(chmod))
}

/// Remove a file or directory
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/fs", params(RemoveParams), responses((status = 204)))]
async fn remove(call: SandboxCall<Run>, Params(params): Params<RemoveParams>) -> Result<StatusCode, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("remove {path}")).await?;
    call.sandbox.remove(&path, params.recursive.unwrap_or(true)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make a directory
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/mkdir", request_body = MakeDirRequest, responses((status = 204)))]
async fn make_dir(call: SandboxCall<Run>, body: JsonBody<MakeDirRequest>) -> Result<StatusCode, ApiError> {
    let request = body.value;
    let mode = request.mode.as_deref().map(permissions).transpose()?;
    let path = resolved(&call.sandbox, request.path)?;
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("make {path}")).await?;
    call.sandbox.make_dir(&path, mode, request.parents.unwrap_or(true)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move a file or directory
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/move", request_body = MoveRequest, responses((status = 204)))]
async fn move_path(call: SandboxCall<Run>, body: JsonBody<MoveRequest>) -> Result<StatusCode, ApiError> {
    let (from, to) = (resolved(&call.sandbox, body.value.from)?, resolved(&call.sandbox, body.value.to)?);
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("move {from} to {to}")).await?;
    call.sandbox.move_path(&from, &to).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change permissions
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/chmod", request_body = ChmodRequest, responses((status = 204)))]
async fn chmod(call: SandboxCall<Run>, body: JsonBody<ChmodRequest>) -> Result<StatusCode, ApiError> {
    let (path, mode) = (resolved(&call.sandbox, body.value.path)?, permissions(&body.value.mode)?);
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("change {path}")).await?;
    call.sandbox.chmod(&path, mode).await?;
    Ok(StatusCode::NO_CONTENT)
}
