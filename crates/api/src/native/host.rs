//! The machine that the server runs on.

use axum::extract::State;
use sandling_service::HostResources;
use sandling_wire::MetricHistoryView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::native::metrics::HistoryParams;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(host)).routes(routes!(history))
}

#[derive(Serialize, ToSchema)]
struct HostView {
    cpus: u32,
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    /// Of the file system that holds the home directory.
    disk_total_bytes: u64,
    disk_available_bytes: u64,
    /// Standby machines that are ready, of all templates.
    standbys: usize,
}

/// Show the host's resources
///
/// All workspaces share them, so the token must be an operator's.
#[utoipa::path(get, path = "/v1/host", responses((status = 200, body = HostView)))]
async fn host(State(app): State<Arc<App>>, _: Caller<Operator>) -> Result<Json<HostView>, ApiError> {
    let home = app.engine.config().home.root();
    let host = HostResources::read(home).map_err(|error| ApiError::internal(&error))?;
    Ok(Json(HostView {
        cpus: host.cpus,
        memory_total_bytes: host.memory_total_bytes,
        memory_available_bytes: host.memory_available_bytes,
        disk_total_bytes: host.disk_total_bytes,
        disk_available_bytes: host.disk_available_bytes,
        standbys: app.engine.machines().standby_count(),
    }))
}

/// Show the resource usage of the host over time
///
/// Points are kept for a day, and across restarts of the server. The network is that of all interfaces but loopback.
#[utoipa::path(
    get, path = "/v1/host/metrics", params(HistoryParams), responses((status = 200, body = MetricHistoryView)),
)]
async fn history(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<MetricHistoryView>, ApiError> {
    let found = app.service.metrics.of_host(&params.query()?).map_err(|error| ApiError::internal(&error))?;
    found.map(|found| Json(found.into_wire())).ok_or_else(|| ApiError::not_found("history of the host"))
}
