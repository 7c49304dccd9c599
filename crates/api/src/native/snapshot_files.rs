//! Export and import of snapshots, never completely in memory.

use std::io::{self, Read, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use sandling_engine::ExportError;
use sandling_wire::{ImportParams, SnapshotView, TemplateRequest, TemplateView};
use tokio::sync::mpsc;

use crate::convert::template::template_view;
use crate::native::snapshots::{check_name, find};
use crate::prelude::*;

/// Parts of a file that are in transit.
const UNDER_WAY: usize = 8;
/// An upload without progress for this long is dropped and leaves no trace.
const STILL_FOR: Duration = Duration::from_secs(60);
const PART: usize = 256 * 1024;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(export)).routes(routes!(import)).routes(routes!(template))
}

/// Export a snapshot
///
/// A compressed file with checksums that contains everything the snapshot needs. It can be imported on any host with
/// the same accelerator, CPU model and emulator. It contains the sandbox's whole memory.
#[utoipa::path(
    get, path = "/v1/snapshots/{id}/export",
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")),
)]
async fn export(call: Call<Run>) -> Result<Response, ApiError> {
    let snapshot = find(&call.app, &call.caller, &call.item)?;
    if !snapshot.has_memory() {
        return Err(ApiError::conflict("snapshot_without_memory", ExportError::OnlyDisk.to_string()));
    }
    let (parts, mut receiving) = mpsc::channel(UNDER_WAY);
    let engine = call.app.engine.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PART, Outgoing { parts: parts.clone() });
        let written = engine.snapshots().export(&snapshot, &mut out);
        let written = written.map_err(io::Error::other).and_then(|()| out.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "a snapshot was not exported");
            // Aborts the connection, so that the client does not mistake a part for the whole.
            let _ = parts.blocking_send(Err(error));
        }
    });
    // Wait for the first part, so that a failing export gets an error status.
    let first = match receiving.recv().await {
        Some(Ok(first)) => first,
        _ => {
            let _ = writing.await;
            return Err(ApiError::conflict("snapshot_unusable", "a file of the snapshot is missing"));
        }
    };
    let first = futures_util::stream::iter([Ok(first)]);
    let rest = futures_util::stream::unfold(receiving, |mut receiving| async move {
        receiving.recv().await.map(|part| (part, receiving))
    });
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    Ok((kind, Body::from_stream(futures_util::StreamExt::chain(first, rest))).into_response())
}

/// Import a snapshot
///
/// The body is an export. The server verifies every checksum first, and refuses a snapshot that cannot run on this
/// host. The emulator reads the device state without further checks, so the token must be an operator's: import only
/// what you trust.
#[utoipa::path(
    post, path = "/v1/snapshots/import", params(ImportParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = SnapshotView)),
)]
async fn import(
    call: Call<Operator>,
    Params(params): Params<ImportParams>,
    request: Request,
) -> Result<(StatusCode, Json<SnapshotView>), ApiError> {
    let name = check_name(params.name)?;
    // The content is compressed, so this is a lower bound.
    let place = call
        .app
        .service
        .sandboxes
        .reserve_disk(call.workspace(), request.body().size_hint().lower().div_ceil(1 << 20).max(1))?;
    let (parts, receiving) = mpsc::channel(UNDER_WAY);
    let (engine, workspace) = (call.app.engine.clone(), call.workspace().to_string());
    let reading = tokio::task::spawn_blocking(move || {
        let incoming = Incoming { parts: receiving, part: Bytes::new(), ended: false };
        engine.snapshots().import(&workspace, name, incoming)
    });
    feed(request.into_body(), parts).await;
    let imported = reading.await.map_err(|error| ApiError::internal(&error))??;
    drop(place);
    Ok((StatusCode::CREATED, Json(imported.into_wire())))
}

/// Forwards a body while the receiver accepts it. An aborted body has no end mark, which the receiver detects.
async fn feed(mut body: Body, parts: mpsc::Sender<Option<Bytes>>) {
    while let Ok(frame) = tokio::time::timeout(STILL_FOR, body.frame()).await {
        match frame {
            None => return drop(parts.send(None).await),
            Some(Err(_)) => return,
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if parts.send(Some(bytes)).await.is_err() {
                    // The import was refused. The rest is read, up to a limit, so that the client gets the response.
                    return crate::extract::discard(&mut body).await;
                }
            }
        }
    }
}

struct Outgoing {
    parts: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.parts.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Incoming {
    parts: mpsc::Receiver<Option<Bytes>>,
    part: Bytes,
    ended: bool,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && !self.ended {
            match self.parts.blocking_recv() {
                Some(Some(part)) => self.part = part,
                Some(None) => self.ended = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}

/// Create a template from a snapshot
///
/// Its sandboxes start at the moment of the snapshot. The snapshot itself may be deleted afterwards.
#[utoipa::path(
    post, path = "/v1/snapshots/{id}/template", request_body = TemplateRequest,
    responses((status = 201, body = TemplateView)),
)]
async fn template(
    call: Call<Run>,
    body: JsonBody<TemplateRequest>,
) -> Result<(StatusCode, Json<TemplateView>), ApiError> {
    let snapshot = find(&call.app, &call.caller, &call.item)?;
    let workspace = call.workspace().as_str();
    let description = check_name(body.value.description)?.unwrap_or_default();
    let made = call.app.engine.template_from_snapshot(workspace, &snapshot, &body.value.name, &description)?;
    Ok((StatusCode::CREATED, Json(template_view(workspace, made))))
}
