//! Health and version of the server.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(version))
}

#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
struct Version {
    name: &'static str,
    version: &'static str,
    /// The accelerator of the machines: `kvm` or `tcg`.
    accelerator: String,
    /// What E2B's clients need as `E2B_DOMAIN`, with the port if it is not 443; absent if the server has no domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
}

/// Check the server's health
#[utoipa::path(get, path = "/healthz", security(()), responses((status = 200, body = Health)))]
async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Show the server's version
#[utoipa::path(get, path = "/version", security(()), responses((status = 200, body = Version)))]
async fn version(State(app): State<Arc<App>>) -> Json<Version> {
    let accelerator = app.engine.probe().accelerator.to_string();
    let domain = app.domain().map(str::to_owned);
    Json(Version { name: "sandling", version: env!("CARGO_PKG_VERSION"), accelerator, domain })
}
