//! What is in a file: read and write it, of any size, never as a whole in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use sandling_engine::{Cause, Download, Sandbox, Upload, UseError};
use sandling_protocol::{EntryKind, WriteMode};
use sandling_wire::{PathParams, WriteParams, Written};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::IntoEngine;
use crate::convert::files::{checked, permissions};
use crate::error::ApiError;
use crate::extract::{Params, Parts, too_slow};
use crate::range::{self, Wanted};

/// An upload that stands still for so long is dropped, and leaves no trace.
const STILL_FOR: Duration = Duration::from_secs(60);

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// Read a file
///
/// Of any size. A `Range` of bytes is answered with that part.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs", tag = "files",
    params(("id" = String, Path), PathParams, ("Range" = Option<String>, Header)),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 416, body = sandling_wire::ErrorBody),
    ),
)]
async fn read(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<PathParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let path = checked(params.path)?;
    match range::wanted(&headers) {
        Wanted::All => {
            let body = body(sandbox.read_file(&path, 0, None)?).await?;
            Ok(([(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))], body).into_response())
        }
        Wanted::Part(part) => read_part(&sandbox, &path, part).await,
    }
}

pub(crate) async fn read_part(sandbox: &Arc<Sandbox>, path: &str, part: range::Part) -> Result<Response, ApiError> {
    let entry = sandbox.stat(path).await?;
    if entry.kind == EntryKind::Directory {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "is_a_directory", "this is a directory"));
    }
    let Some((first, length)) = part.within(entry.size) else {
        let message = format!("the file has {} bytes", entry.size);
        return Err(ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "out_of_range", message));
    };
    let body = body(sandbox.read_file(path, first, Some(length))?).await?;
    let range = format!("bytes {first}-{}/{}", first + length - 1, entry.size);
    Ok((StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], body).into_response())
}

/// A file's bytes as a body. The first are waited for, so that a file that is not there gets a status.
pub(crate) async fn body(mut download: Download) -> Result<Response, ApiError> {
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    let Some(first) = download.next().await? else { return Ok((kind, Body::empty()).into_response()) };
    let first = futures_util::stream::iter([Ok(Bytes::from(first))]);
    let rest = futures_util::stream::unfold(Some(download), |download| async move {
        let mut download = download?;
        match download.next().await {
            Ok(Some(bytes)) => Some((Ok::<_, UseError>(Bytes::from(bytes)), Some(download))),
            Ok(None) => None,
            // Breaks the connection off, so that the client does not take a part for the whole.
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok((kind, Body::from_stream(first.chain(rest))).into_response())
}

/// Write a file
///
/// The body is its content, of any size. Directories above it are made. The file is there when the answer comes, and
/// not before; an upload that breaks off leaves no trace.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/fs", tag = "files", params(("id" = String, Path), WriteParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Written)),
)]
async fn write(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    Params(params): Params<WriteParams>,
    request: Request,
) -> Result<Json<Written>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let path = checked(params.path)?;
    let mode = params.mode.as_deref().map(permissions).transpose()?;
    let write = params.write.map_or(WriteMode::Replace, IntoEngine::into_engine);
    app.engine.before(&sandbox, Cause::Files, &format!("write {path}")).await?;
    let upload = sandbox.write_file(&path, write, mode, params.user)?;
    send(&upload, request.into_body()).await?;
    let bytes = upload.finish().await?;
    Ok(Json(Written { path, bytes }))
}

pub(crate) async fn send(upload: &Upload, mut body: Body) -> Result<(), ApiError> {
    loop {
        let frame = tokio::time::timeout(STILL_FOR, body.frame()).await.map_err(|_| too_slow())?;
        match frame {
            None => return Ok(()),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    upload.send(&bytes).await?;
                }
            }
            Some(Err(_)) => return Err(ApiError::bad_request("the body ended too early")),
        }
    }
}
