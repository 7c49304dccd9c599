//! File contents over plain HTTP, with the sandbox's token or a signed URL.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::routing::get;
use sandling_engine::Cause;
use sandling_protocol::EntryKind;
use serde_json::Value;

use super::metadata;
use super::paths::resolve;
use super::unread_body::UnreadBody;
use super::upload;
use crate::auth::query_value;
use crate::e2b::place::Envd;
use crate::e2b::unnamed::{FILES, READ, WRITE};
use crate::file_content::{body, read_part};
use crate::prelude::*;
use crate::range::{self, RequestedRange};

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route(FILES, get(read).post(write))
}

async fn read(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let envd = Envd::of_file(&app, &parts, READ).await?;
    let path = resolve(&envd.sandbox, envd.user(), &query_value(parts.uri.query(), "path")).await?;
    let entry = envd.sandbox.stat(&path).await.map_err(|error| not_read(&path, error.into()))?;
    if entry.kind == EntryKind::Directory {
        return Err(ApiError::bad_request(format!("path '{path}' is a directory")));
    }
    if let RequestedRange::Part(part) = range::requested(&parts.headers) {
        return read_part(&envd.sandbox, &path, part).await;
    }
    // Kernel files report a size of 0, so their length is unknown before reading.
    let length = (entry.size > 0).then_some(entry.size);
    let mut response = body(envd.sandbox.read_file(&path, 0, length)?).await?;
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.headers_mut().insert(header::CONTENT_DISPOSITION, inline(&entry.name));
    Ok(response)
}

/// Says in E2B's words that a file does not exist. The clients show them.
fn not_read(path: &str, mut error: ApiError) -> ApiError {
    if error.code == "not_found" {
        error.message = format!("path '{path}' does not exist");
    }
    error
}

/// A browser that opens the URL shows the file under its name.
fn inline(name: &str) -> HeaderValue {
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && !"\"\\".contains(*c)).collect();
    format!("inline; filename=\"{plain}\"").parse().unwrap_or(HeaderValue::from_static("inline"))
}

async fn write(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Vec<Value>>, ApiError> {
    let (request, rest) = UnreadBody::of(request);
    let written = write_files(&app, headers, request).await;
    if written.is_err() {
        rest.discard().await;
    }
    written
}

async fn write_files(app: &Arc<App>, headers: HeaderMap, request: Request) -> Result<Json<Vec<Value>>, ApiError> {
    let (parts, body) = request.into_parts();
    let envd = Envd::of_file(app, &parts, WRITE).await?;
    let metadata = metadata::sent(&headers)?;
    let path = query_value(parts.uri.query(), "path");
    let path = (!path.is_empty()).then_some(path);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    app.engine.before(&envd.sandbox, Cause::Files, &format!("write {}", path.as_deref().unwrap_or("files"))).await?;
    let written = if kind.starts_with("multipart/form-data") {
        upload::forms(&envd, path, &metadata, Request::from_parts(parts, body)).await?
    } else if kind.starts_with("application/octet-stream") {
        let path = path.ok_or_else(|| ApiError::bad_request("path is missing"))?;
        vec![upload::plain(&envd, &path, &headers, &metadata, body).await?]
    } else {
        return Err(ApiError::bad_request("a file comes as multipart/form-data or application/octet-stream"));
    };
    Ok(Json(written))
}
