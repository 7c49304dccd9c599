//! The network policy of a sandbox, and the decisions of its gateway.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use sandling_engine::network::{Before, NetworkEvent};
use sandling_engine::{NetworkChange, Sandbox};
use sandling_wire::{EventParams, NetworkEventList, NetworkRequest, NetworkView};
use tokio::sync::broadcast;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::IntoWire;
use crate::convert::network::network_change;
use crate::convert::network_view::network_view;
use crate::error::ApiError;
use crate::extract::{JsonBody, Params, Parts};
use crate::sse::{self, Events, Gone};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(get, set, clear)).routes(routes!(events))
}

/// Show what a sandbox may reach
///
/// Its own policy or the default that applies (`from`), and the binding policy of the workspace. Also the counters of
/// its gateway and, in the mode `learn`, the allow-list of what was used.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/network", tag = "network", params(("id" = String, Path)),
    responses((status = 200, body = NetworkView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(network_view(&*caller.sandbox(&app, &id).await?)))
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
    put, path = "/v1/sandboxes/{id}/network", tag = "network", params(("id" = String, Path)),
    request_body = NetworkRequest, responses((status = 200, body = NetworkView)),
)]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<NetworkRequest>,
) -> Result<Json<NetworkView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    sandbox.change_network(network_change(body.value)?).await?;
    Ok(Json(network_view(&sandbox)))
}

/// Return a sandbox to the defaults
///
/// Removes its own policy and limits at once, also for open connections. Secrets and the group stay.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/network", tag = "network", params(("id" = String, Path)),
    responses((status = 204)),
)]
async fn clear(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    let change = NetworkChange { before: Before::Forgotten, ..NetworkChange::default() };
    caller.sandbox(&app, &id).await?.change_network(change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the decisions of a sandbox's gateway
///
/// DNS queries, connections and requests, each allowed or refused with the reason. The newest thousand are stored. With
/// `follow`, an event stream.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/network/events", tag = "network", params(("id" = String, Path), EventParams),
    responses((status = 200, content((NetworkEventList = "application/json"), (String = "text/event-stream")))),
)]
async fn events(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    // Subscribe before reading the stored events, so that none is missed.
    let live = sandbox.subscribe_network();
    let seen: Option<u64> = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let most = if seen.is_some() { usize::MAX } else { params.tail() as usize };
    let old = sandbox.network_events(seen.unwrap_or_default(), most);
    if !params.follows() {
        let events = old.into_iter().map(IntoWire::into_wire).collect();
        return Ok(Json(NetworkEventList { events }).into_response());
    }
    Ok(sse::endless(app.closing(), move |events| follow(sandbox, old, live, events)))
}

/// Ends with the sandbox, or if the client reads too slowly; the client then reconnects with its last id.
async fn follow(
    sandbox: Arc<Sandbox>,
    old: Vec<NetworkEvent>,
    mut live: broadcast::Receiver<NetworkEvent>,
    events: Events,
) -> Result<(), Gone> {
    let mut last = old.last().map_or(0, |event| event.number);
    for event in old {
        send(&events, event).await?;
    }
    loop {
        let event = tokio::select! {
            event = live.recv() => event,
            _ = sandbox.ended() => return Ok(()),
        };
        match event {
            Ok(event) if event.number > last => {
                last = event.number;
                send(&events, event).await?;
            }
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
    }
}

async fn send(events: &Events, event: NetworkEvent) -> Result<(), Gone> {
    let view = event.into_wire();
    events.send_with_id(view.number, "event", &view).await
}
