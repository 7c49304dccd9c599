//! Quotas.

use axum::extract::State;
use sandling_service::WorkspaceName;
use sandling_wire::{LimitsChange, QuotaView};

use crate::convert::access::apply_limits;
use crate::native::workspaces::named;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(own)).routes(routes!(get, set))
}

/// Show the workspace's quota and usage
#[utoipa::path(get, path = "/v1/quota", responses((status = 200, body = QuotaView)))]
async fn own(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<QuotaView>, ApiError> {
    view(&app, caller.workspace()).await
}

/// Show the quota of a workspace
#[utoipa::path(get, path = "/v1/workspaces/{workspace}/quota", responses((status = 200, body = QuotaView)))]
async fn get(call: Call<Operator>) -> Result<Json<QuotaView>, ApiError> {
    view(&call.app, &named(&call.app, &call.item)?).await
}

/// Change a workspace's quota
///
/// It applies from the next request; existing sandboxes stay. An absent limit stays as it is, and null removes the limit.
#[utoipa::path(
    put, path = "/v1/workspaces/{workspace}/quota", request_body = LimitsChange, responses((status = 200, body = QuotaView)),
)]
async fn set(call: Call<Operator>, body: JsonBody<LimitsChange>) -> Result<Json<QuotaView>, ApiError> {
    let name = named(&call.app, &call.item)?;
    // No token of the workspace could change it again.
    for (limit, value) in
        [("requests_per_second", body.value.requests_per_second), ("open_requests", body.value.open_requests)]
    {
        if value == Some(Some(0)) {
            return Err(ApiError::bad_request(format!("{limit} must be at least 1")));
        }
    }
    call.app.service.admission.change_quota(&name, |quota| apply_limits(&body.value, quota))?;
    view(&call.app, &name).await
}

async fn view(app: &App, workspace: &WorkspaceName) -> Result<Json<QuotaView>, ApiError> {
    app.engine.settled().await;
    let limits = app.service.admission.quota(workspace)?.into_wire();
    Ok(Json(QuotaView { limits, used: app.service.sandboxes.usage_of_all(workspace).await.into_wire() }))
}
