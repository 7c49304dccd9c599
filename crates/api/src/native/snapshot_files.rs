//! Export and import of snapshots, never completely in memory.

use std::io;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use hyper::body::Body as _;
use sandling_engine::ExportError;
use sandling_wire::{ImportParams, SnapshotView, TemplateRequest, TemplateView};

use crate::convert::template::template_view;
use crate::native::snapshots::{check_name, find};
use crate::piped;
use crate::prelude::*;

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
    let engine = call.app.engine.clone();
    let body = piped::outgoing(move |out| engine.snapshots().export(&snapshot, out).map_err(io::Error::other)).await;
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
        .reserve_disk(call.workspace(), request.body().size_hint().lower().div_ceil(1 << 20).max(1))?;
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
