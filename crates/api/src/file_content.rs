//! The content of files as bodies, of any size and never completely in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use sandling_engine::{Download, Sandbox, Upload, UseError};
use sandling_protocol::EntryKind;

use crate::error::ApiError;
use crate::extract::too_slow;
use crate::range;

/// An upload without progress for this long is dropped and leaves no trace.
const STILL_FOR: Duration = Duration::from_secs(60);

/// A range of a file.
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

/// A file as a body. Waits for the first bytes, so that a missing file gets a status.
pub(crate) async fn body(mut download: Download) -> Result<Response, ApiError> {
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    let Some(first) = download.next().await? else { return Ok((kind, Body::empty()).into_response()) };
    let first = futures_util::stream::iter([Ok(Bytes::from(first))]);
    let rest = futures_util::stream::unfold(Some(download), |download| async move {
        let mut download = download?;
        match download.next().await {
            Ok(Some(bytes)) => Some((Ok::<_, UseError>(Bytes::from(bytes)), Some(download))),
            Ok(None) => None,
            // Aborts the connection, so that the client does not mistake a part for the whole file.
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok((kind, Body::from_stream(first.chain(rest))).into_response())
}

/// Writes a body to a file.
pub(crate) async fn send(upload: &mut Upload, body: Body) -> Result<(), ApiError> {
    let mut body = frames(body);
    while let Some(bytes) = body.next().await? {
        upload.send(&bytes).await?;
    }
    Ok(())
}

/// The data of a body that the client sends. One without progress is refused.
pub(crate) struct Frames(Body);

pub(crate) fn frames(body: Body) -> Frames {
    Frames(body)
}

impl Frames {
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = tokio::time::timeout(STILL_FOR, self.0.frame()).await.map_err(|_| too_slow())?;
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(_)) => return Err(ApiError::bad_request("the body ended too early")),
            }
        }
    }
}
