//! What a sandbox may reach, and what its gateway decided.

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

/// What a sandbox may reach
///
/// Its own policy, or that of the default that it follows (`from`), and what binds it. Also what went through its gateway
/// and, in the mode `learn`, the list that would have allowed it.
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
/// At once, also for connections that are open. What is absent stays as it is; who changes a default that it followed
/// has a policy of its own from then on. A mode other than `allow` empties the list. `secrets` names all that it has from
/// then on.
///
/// New secrets, and TLS `inspected`, need the guest's help: it is told whom to trust. All the rest holds whether it does or
/// not. If it does not, the answer is 409 `guest_not_told` and says what is missing: it was not given the new secrets, or
/// its TLS is refused.
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

/// Let a sandbox follow the defaults again
///
/// Its own policy and limits are forgotten, at once, also for connections that are open. Secrets and groups stay.
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

/// What a sandbox's gateway decided
///
/// Names that were asked for, connections, requests: allowed or refused, and why. The newest thousand are kept. With
/// `follow` as an event stream.
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
    // Before the old ones are read, so that none falls between.
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

/// Until the sandbox has ended, or the client reads too slowly; then it comes back with its last id.
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
