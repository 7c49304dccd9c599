//! Export and import of snapshots, never completely in memory.

use std::io;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use hyper::body::Body as _;
use sandling_engine::{ExportError, FairSlots, Slot};
use sandling_wire::{ImportParams, SnapshotView, TemplateRequest, TemplateView};

use crate::convert::template::template_view;
use crate::native::snapshots::{check_name, find};
use crate::piped;
use crate::prelude::*;

/// Exports that run at once. Each reads a whole snapshot twice, compresses it, and occupies a thread until its client has
/// read it.
const EXPORTS: usize = 8;
const EXPORTS_PER_WORKSPACE: usize = 2;
/// A request that waited this long is refused, before its client gives up by itself.
const EXPORT_WAIT: Duration = Duration::from_secs(20);
/// In seconds.
const RETRY_AFTER: u64 = 5;

struct Exports(Arc<FairSlots>);

impl Default for Exports {
    fn default() -> Self {
        Self(FairSlots::new(EXPORTS, EXPORTS_PER_WORKSPACE))
    }
}

impl Exports {
    async fn slot(&self, workspace: &str) -> Result<Slot, ApiError> {
        let busy = |_| {
            let message = "too many snapshots are being exported at once; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", message).retry_after(RETRY_AFTER)
        };
        tokio::time::timeout(EXPORT_WAIT, self.0.acquire(workspace)).await.map_err(busy)
    }
}

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
    let slot = call.app.dialect_state::<Exports>().slot(call.workspace().as_str()).await?;
    let engine = call.app.engine.clone();
    let body = piped::outgoing(move |out| {
        let _slot = slot;
        engine.snapshots().export(&snapshot, out).map_err(io::Error::other)
    });
    let body = body.await;
    let body = body.map_err(|_| ApiError::conflict("snapshot_unusable", "a file of the snapshot is missing"))?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    Ok((kind, body).into_response())
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
        .reserve_disk(call.workspace(), request.body().size_hint().lower().div_ceil(1 << 20).max(1))
        .await?;
    let (engine, workspace) = (call.app.engine.clone(), call.workspace().to_string());
    let read = move |incoming| engine.snapshots().import(&workspace, name, incoming);
    let imported = piped::incoming(request.into_body(), read).await.map_err(|error| ApiError::internal(&error))??;
    drop(place);
    Ok((StatusCode::CREATED, Json(imported.into_wire())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_workspace_that_exports_much_is_refused_and_others_are_not() {
        let exports = Exports::default();
        let mut running = Vec::new();
        for _ in 0..EXPORTS_PER_WORKSPACE {
            running.push(exports.slot("busy").await.unwrap());
        }
        let refused = exports.slot("busy").await.err().unwrap();
        assert_eq!((refused.status, refused.code), (StatusCode::SERVICE_UNAVAILABLE, "no_capacity"));
        for number in running.len()..EXPORTS {
            running.push(exports.slot(&format!("other-{}", number / EXPORTS_PER_WORKSPACE)).await.unwrap());
        }
        assert!(exports.slot("late").await.is_err(), "the host has its limit, too");
        drop(running);
        assert!(exports.slot("busy").await.is_ok());
    }
}
