//! Reading and writing the content of files.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use sandling_engine::Cause;
use sandling_protocol::WriteMode;
use sandling_wire::{PathParams, WriteParams, Written};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::IntoEngine;
use crate::convert::files::{checked, permissions};
use crate::error::ApiError;
use crate::extract::{Params, Parts};
use crate::file_content::{body, read_part, send};
use crate::range::{self, Wanted};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// Read a file
///
/// Any size. A `Range` of bytes returns that part.
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

/// Write a file
///
/// The body is the content, of any size. Missing parent directories are created. The file appears when the upload is
/// complete; an upload that breaks off leaves no trace.
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
