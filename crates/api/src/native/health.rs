//! Health and version of the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

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
}

/// Check the server's health
#[utoipa::path(get, path = "/healthz", tag = "server", security(()), responses((status = 200, body = Health)))]
async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Show the server's version
#[utoipa::path(get, path = "/version", tag = "server", security(()), responses((status = 200, body = Version)))]
async fn version(State(app): State<Arc<App>>) -> Json<Version> {
    let accelerator = app.engine.probe().accelerator.to_string();
    Json(Version { name: "sandling", version: env!("CARGO_PKG_VERSION"), accelerator })
}
