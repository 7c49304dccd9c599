//! The audit log.

use axum::extract::State;
use sandling_service::{AuditQuery, Scope};
use sandling_wire::{AuditList, AuditParams, AuditVerification, AuditVerifyParams, RecordingParams, RecordingView};

use crate::native::workspaces::managed;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(recording)).routes(routes!(verify))
}

/// Read the audit log
///
/// Every change with its actor, object, result and request id, oldest first. Without `after`, the newest entries. In a
/// fleet, the entries of all nodes by time, and the header `sandling-partial` names nodes that do not answer.
#[utoipa::path(get, path = "/v1/audit", params(AuditParams), responses((status = 200, body = AuditList)))]
async fn list(call: Call<Admin>, Params(params): Params<AuditParams>) -> Result<Json<AuditList>, ApiError> {
    let workspace = match &params.workspace {
        Some(name) => managed(&call.app, &call.caller, name)?,
        None => call.workspace().clone(),
    };
    let since = params.since.as_deref().map(|since| {
        since.parse().map_err(|_| ApiError::bad_request("since must be a time such as 2026-01-31T12:00:00Z"))
    });
    let after = params
        .after
        .as_deref()
        .map(|after| after.parse::<i64>().map_err(|_| ApiError::bad_request("after must be the number of an entry")));
    let after = after.transpose()?;
    let query =
        AuditQuery { workspace: Some(workspace), since: since.transpose()?, after, limit: params.limit.unwrap_or(100) };
    let entries = call.app.service.audit.entries(&query)?;
    let next = entries.last().map(|last| last.number).or(after).map(|number| number.to_string());
    Ok(Json(AuditList { items: entries.into_wire(), next }))
}

/// Verify the audit log
///
/// Checks the hash chains of the log. Each workspace has one chain of changes and one of refused requests.
#[utoipa::path(
    get, path = "/v1/audit/verify", params(AuditVerifyParams), responses((status = 200, body = AuditVerification)),
)]
async fn verify(
    call: Call<Admin>,
    Params(params): Params<AuditVerifyParams>,
) -> Result<Json<AuditVerification>, ApiError> {
    let workspace = match &params.workspace {
        Some(name) => Some(managed(&call.app, &call.caller, name)?),
        None if call.caller.principal.scope.allows(Scope::Operator) => None,
        None => Some(call.workspace().clone()),
    };
    let service = call.app.service.clone();
    let verified = tokio::task::spawn_blocking(move || service.audit.verify(workspace.as_ref())).await;
    let reports = verified.map_err(|error| ApiError::internal(&error))??;
    Ok(Json(AuditVerification { chains: reports.into_wire() }))
}

/// The code and output of a run
///
/// Only for runs in workspaces that record them.
#[utoipa::path(
    get, path = "/v1/audit/{number}/recording", params(("number" = i64, Path), RecordingParams),
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
