//! Open TCP ports of a sandbox.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandling_wire::{PortList, PortView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::ApiError;
use crate::extract::Parts;
use crate::preview::host::Origin;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// List open ports
///
/// A preview needs a token, or an API token with the scope `run`; see `preview-token`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports", tag = "previews", params(("id" = String, Path)),
    responses((status = 200, body = PortList)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    origin: Origin,
) -> Result<Json<PortList>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let ports = sandbox.ports().await?;
    let view = |port| PortView { port, preview_url: origin.preview_url(port, sandbox.id().as_str()) };
    Ok(Json(PortList { ports: ports.into_iter().map(view).collect() }))
}
