//! Events of sandboxes and of the workspace.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use sandling_engine::{Event, SandboxId};
use sandling_wire::{EventList, EventParams};
use tokio::sync::broadcast;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::convert::IntoWire;
use crate::error::ApiError;
use crate::extract::{Params, Parts};
use crate::sse::{self, Events, Gone};

/// How far back a reconnecting client can continue.
const MOST_REPLAYED: u32 = 10_000;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_sandbox)).routes(routes!(of_workspace))
}

/// Events of a sandbox
///
/// Also of a sandbox that has ended. With `follow`, an event stream in which a reconnecting `EventSource` continues
/// where it stopped.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/events", tag = "events", params(("id" = String, Path), EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream")))),
)]
async fn of_sandbox(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("sandbox");
    let id = SandboxId::parse(&id).ok_or_else(missing)?;
    let scope = Scope { workspace: caller.workspace().to_string(), sandbox: Some(id) };
    // An ended sandbox has only its events left.
    if scope.newest(&app, 1)?.is_empty() {
        return Err(missing());
    }
    answer(&app, scope, &params, &headers)
}

/// Events of the workspace
#[utoipa::path(
    get, path = "/v1/events", tag = "events", params(EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream")))),
)]
async fn of_workspace(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let scope = Scope { workspace: caller.workspace().to_string(), sandbox: None };
    answer(&app, scope, &params, &headers)
}

/// The sandbox or workspace whose events are requested.
struct Scope {
    workspace: String,
    sandbox: Option<SandboxId>,
}

impl Scope {
    fn newest(&self, app: &App, limit: u32) -> Result<Vec<Event>, ApiError> {
        Ok(app.engine.events().newest(&self.workspace, self.sandbox.as_ref(), limit)?)
    }

    fn after(&self, app: &App, number: i64) -> Result<Vec<Event>, ApiError> {
        Ok(app.engine.events().after(&self.workspace, self.sandbox.as_ref(), number, MOST_REPLAYED)?)
    }

    fn holds(&self, event: &Event) -> bool {
        let same = self.sandbox.as_ref().is_none_or(|id| id.as_str() == event.sandbox);
        same && event.workspace == self.workspace
    }
}

fn answer(app: &Arc<App>, scope: Scope, params: &EventParams, headers: &HeaderMap) -> Result<Response, ApiError> {
    // Subscribe before reading the stored events, so that none is missed.
    let live = app.engine.events().subscribe();
    let seen: Option<i64> = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let old = match seen {
        Some(number) => scope.after(app, number)?,
        None => scope.newest(app, params.tail())?,
    };
    if !params.follows() {
        return Ok(Json(EventList { events: old.into_iter().map(IntoWire::into_wire).collect() }).into_response());
    }
    Ok(sse::endless(app.closing(), move |events| follow(scope, old, live, events)))
}

async fn follow(
    scope: Scope,
    old: Vec<Event>,
    mut live: broadcast::Receiver<Event>,
    events: Events,
) -> Result<(), Gone> {
    let mut last = old.last().map_or(0, |event| event.number);
    for event in old {
        send(&events, event).await?;
    }
    loop {
        match live.recv().await {
            Ok(event) if scope.holds(&event) && event.number > last => {
                last = event.number;
                send(&events, event).await?;
            }
            Ok(_) => {}
            // The client reads too slowly. It is disconnected, and resumes from its last id without missing an event.
            Err(_) => return Ok(()),
        }
    }
}

async fn send(events: &Events, event: Event) -> Result<(), Gone> {
    let view = event.into_wire();
    events.send_with_id(view.number.unsigned_abs(), "event", &view).await
}
