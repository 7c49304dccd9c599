//! Quotas.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandling_service::WorkspaceName;
use sandling_wire::{Limits, QuotaView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Operator, Read};
use crate::convert::{IntoEngine, IntoWire};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::native::workspaces::named;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(own)).routes(routes!(get, set))
}

/// Show the workspace's quota and usage
#[utoipa::path(get, path = "/v1/quota", tag = "access", responses((status = 200, body = QuotaView)))]
async fn own(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<QuotaView>, ApiError> {
    view(&app, caller.workspace()).await
}

/// Show the quota of a workspace
#[utoipa::path(
    get, path = "/v1/workspaces/{workspace}/quota", tag = "access", params(("workspace" = String, Path)),
    responses((status = 200, body = QuotaView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Parts(workspace): Parts<String>,
) -> Result<Json<QuotaView>, ApiError> {
    view(&app, &named(&app, &workspace)?).await
}

/// Set a workspace's quota
///
/// It applies from the next request; existing sandboxes stay. An absent or null limit means unlimited.
#[utoipa::path(
    put, path = "/v1/workspaces/{workspace}/quota", tag = "access", params(("workspace" = String, Path)),
    request_body = Limits,
    responses((status = 200, body = QuotaView)),
)]
async fn set(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Parts(workspace): Parts<String>,
    body: JsonBody<Limits>,
) -> Result<Json<QuotaView>, ApiError> {
    let name = named(&app, &workspace)?;
    // No token of the workspace could change it again.
    for (limit, value) in
        [("requests_per_second", body.value.requests_per_second), ("open_requests", body.value.open_requests)]
    {
        if value == Some(0) {
            return Err(ApiError::bad_request(format!("{limit} must be at least 1")));
        }
    }
    app.service.admission.set_quota(&name, &body.value.into_engine())?;
    view(&app, &name).await
}

async fn view(app: &App, workspace: &WorkspaceName) -> Result<Json<QuotaView>, ApiError> {
    app.engine.settled().await;
    let limits = app.service.admission.quota(workspace)?.into_wire();
    Ok(Json(QuotaView { limits, used: app.service.sandboxes.usage(workspace).into_wire() }))
}
