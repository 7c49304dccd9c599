//! Open TCP ports of a sandbox.

use sandling_wire::{PortList, PortView};

use crate::prelude::*;
use crate::preview::host::Origin;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// List open ports
///
/// A preview needs a token, or an API token with the scope `run`; see `preview-token`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports", responses((status = 200, body = PortList)))]
async fn list(call: SandboxCall<Read>, origin: Origin) -> Result<Json<PortList>, ApiError> {
    let ports = call.sandbox.ports().await?;
    let view = |port| PortView { port, preview_url: origin.preview_url(port, call.sandbox.id().as_str()) };
    Ok(Json(PortList { ports: ports.into_iter().map(view).collect() }))
}
