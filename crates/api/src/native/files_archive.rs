//! Directories as tar archives.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use sandling_engine::Cause;
use sandling_wire::{PathParams, Written};

use crate::convert::files::resolved;
use crate::file_content::frames;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// Read a directory as a tar
///
/// The names in it start with `./`. A directory of any size is streamed. If reading fails in the middle, the connection
/// is closed.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/tar", params(PathParams),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar")),
)]
async fn read(call: SandboxCall<Read>, Params(params): Params<PathParams>) -> Result<Response, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    let mut archive = call.sandbox.read_archive(&path)?;
    // Waits for the first bytes, so that a missing directory gets a status.
    let first = archive.next().await?.unwrap_or_default();
    let rest = futures_util::stream::unfold(Some(archive), |archive| async move {
        let mut archive = archive?;
        match archive.next().await {
            Ok(Some(bytes)) => Some((Ok(Bytes::from(bytes)), Some(archive))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    let all = futures_util::StreamExt::chain(futures_util::stream::iter([Ok(Bytes::from(first))]), rest);
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))];
    Ok((kind, Body::from_stream(all)).into_response())
}

/// Unpack a tar into a directory
///
/// The body is a tar without compression. The directory is created, and existing files are replaced. Permissions and
/// links are kept; all files belong to root. The guest's tar unpacks it: an image without tar answers `unsupported`. An
/// upload that breaks off leaves what was unpacked until then.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/fs/tar", params(PathParams),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses((status = 200, body = Written)),
)]
async fn write(
    call: SandboxCall<Run>,
    Params(params): Params<PathParams>,
    request: Request,
) -> Result<Json<Written>, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    call.app.engine.before(&call.sandbox, Cause::Files, &format!("unpack into {path}")).await?;
    let upload = call.sandbox.write_archive(&path)?;
    let mut sent = 0;
    let mut body = frames(request.into_body());
    while let Some(bytes) = body.next().await? {
        sent += bytes.len() as u64;
        if upload.send(&bytes).await.is_err() {
            // tar has ended. `finish` says why.
            break;
        }
    }
    upload.finish().await?;
    Ok(Json(Written { path, bytes: sent }))
}
