//! The audit log.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandling_service::AuditQuery;
use sandling_wire::{AuditList, AuditParams, RecordingView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Admin, Caller};
use crate::convert::IntoWire;
use crate::error::ApiError;
use crate::extract::{Params, Parts};
use crate::native::workspaces::managed;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(recording))
}

/// Read the audit log
///
/// Every change with its actor, object, result and request id, oldest first. Without `after`, the newest entries.
#[utoipa::path(
    get, path = "/v1/audit", tag = "access", params(AuditParams),
    responses((status = 200, body = AuditList)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditList>, ApiError> {
    let workspace = match &params.workspace {
        Some(name) => managed(&app, &caller, name)?,
        None => caller.workspace().clone(),
    };
    let since = params.since.as_deref().map(|since| {
        since.parse().map_err(|_| ApiError::bad_request("since must be a time such as 2026-01-31T12:00:00Z"))
    });
    let query = AuditQuery {
        workspace: Some(workspace),
        since: since.transpose()?,
        after: params.after,
        limit: params.limit.unwrap_or(100),
    };
    let entries = app.service.audit.entries(&query)?;
    Ok(Json(AuditList { items: entries.into_iter().map(IntoWire::into_wire).collect() }))
}

/// The code and output of a run
///
/// Only for runs in workspaces that record them.
#[utoipa::path(
    get, path = "/v1/audit/{number}/recording", tag = "access", params(("number" = i64, Path)),
    responses((status = 200, body = RecordingView)),
)]
async fn recording(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(number): Parts<i64>,
) -> Result<Json<RecordingView>, ApiError> {
    let recording = app.service.audit.recording(caller.workspace(), number)?;
    let recording = recording.ok_or_else(|| ApiError::not_found("recording"))?;
    Ok(Json(RecordingView {
        code: recording.code,
        code_cut: recording.code_cut,
        output: recording.output,
        output_cut: recording.output_cut,
    }))
}
