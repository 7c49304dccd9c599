//! Reading and writing the content of files.

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use sandling_engine::Cause;
use sandling_protocol::WriteMode;
use sandling_wire::{PathParams, WriteParams, Written};

use crate::convert::files::{permissions, resolved};
use crate::file_content::{body, read_part, send};
use crate::prelude::*;
use crate::range::{self, RequestedRange};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// Read a file
///
/// Any size. A `Range` of bytes returns that part.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs", params(PathParams, ("Range" = Option<String>, Header)),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 416, body = sandling_wire::ErrorBody),
    ),
)]
async fn read(
    call: SandboxCall<Read>,
    Params(params): Params<PathParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    match range::requested(&headers) {
        RequestedRange::All => {
            let body = body(call.sandbox.read_file(&path, 0, None)?).await?;
            Ok(([(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))], body).into_response())
        }
        RequestedRange::Part(part) => read_part(&call.sandbox, &path, part).await,
    }
}

/// Write a file
///
/// The body is the content, of any size. Missing parent directories are created. The file appears when the upload is
/// complete; an upload that breaks off leaves no trace.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/fs", params(WriteParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Written)),
)]
async fn write(
    call: SandboxCall<Run>,
    Params(params): Params<WriteParams>,
    request: Request,
) -> Result<Json<Written>, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    let mode = params.mode.as_deref().map(permissions).transpose()?;
    let write = params.write.map_or(WriteMode::Replace, IntoEngine::into_engine);
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("write {path}")).await?;
    let mut upload = call.sandbox.write_file(&path, write, mode, params.user)?;
    send(&mut upload, request.into_body()).await?;
    let bytes = upload.finish().await?;
    Ok(Json(Written { path, bytes }))
}
