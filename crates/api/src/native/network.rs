//! The network policy of a sandbox, and the decisions of its gateway.

use sandling_engine::NetworkChange;
use sandling_engine::network::{Before, NetworkEvent};
use sandling_wire::{EventParams, NetworkEventList, NetworkRequest, NetworkView};

use crate::convert::network::network_change;
use crate::convert::network_view::network_view;
use crate::prelude::*;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(get, set, clear)).routes(routes!(events))
}

/// Show what a sandbox may reach
///
/// Its own policy or the default that applies (`from`), and the binding policy of the workspace. Also the counters of
/// its gateway and, in the mode `learn`, the allow-list of what was used.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/network", responses((status = 200, body = NetworkView)))]
async fn get(call: SandboxCall<Read>) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(network_view(&call.sandbox)))
}

/// Change what a sandbox may reach
///
/// The change applies at once, also to open connections. Absent fields stay unchanged. If a default applied so far, the
/// sandbox gets its own policy. A mode other than `allow` empties the list. `secrets` replaces the list of secrets.
///
/// For new secrets and for TLS `inspected`, the guest must learn about a certificate authority. All other changes apply
/// without the guest. If the guest does not respond, the response is 409 `guest_not_told` and says what is missing: the
/// new secrets were not attached, or the gateway refuses TLS.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/network", request_body = NetworkRequest,
    responses((status = 200, body = NetworkView)),
)]
async fn set(call: SandboxCall<Run>, body: JsonBody<NetworkRequest>) -> Result<Json<NetworkView>, ApiError> {
    call.sandbox.change_network(network_change(body.value)?).await?;
    Ok(Json(network_view(&call.sandbox)))
}

/// Return a sandbox to the defaults
///
/// Removes its own policy and limits at once, also for open connections. Secrets and the group stay.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/network", responses((status = 204)))]
async fn clear(call: SandboxCall<Run>) -> Result<StatusCode, ApiError> {
    let change = NetworkChange { before: Before::Forgotten, ..NetworkChange::default() };
    call.sandbox.change_network(change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the decisions of a sandbox's gateway
///
/// DNS queries, connections and requests, each allowed or refused with the reason. The newest thousand are stored. With
/// `follow`, an event stream.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/network/events", params(EventParams),
    responses((status = 200, content((NetworkEventList = "application/json"), (String = "text/event-stream")))),
)]
async fn events(
    call: SandboxCall<Read>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Subscribe before reading the stored events, so that none is missed.
    let live = call.sandbox.subscribe_network();
    let seen = sse::last_event_id(&headers);
    let most = if seen.is_some() { usize::MAX } else { params.tail() as usize };
    let old = call.sandbox.network_events(seen.unwrap_or_default(), most);
    if !params.follows() {
        let events = old.into_wire();
        return Ok(Json(NetworkEventList { events }).into_response());
    }
    Ok(sse::endless(call.app.closing(), move |events| async move {
        let view = |event: NetworkEvent| Some((event.number, event.into_wire()));
        tokio::select! {
            biased;
            end = sse::follow(events, old, live, view) => end,
            _ = call.sandbox.ended() => Ok(()),
        }
    }))
}
