//! Events of sandboxes and of the workspace.

use sandling_engine::{Event, SandboxId};
use sandling_wire::{EventList, EventParams};

use crate::prelude::*;
use crate::sse;

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
    get, path = "/v1/sandboxes/{id}/events", params(EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream")))),
)]
async fn of_sandbox(
    call: Call<Read>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("sandbox");
    let id = SandboxId::parse(&call.item).ok_or_else(missing)?;
    let scope = Scope { workspace: call.workspace().to_string(), sandbox: Some(id) };
    // An ended sandbox has only its events left.
    if scope.newest(&call.app, 1)?.is_empty() {
        return Err(missing());
    }
    answer(&call.app, scope, &params, &headers)
}

/// Events of the workspace
#[utoipa::path(
    get, path = "/v1/events", params(EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream")))),
)]
async fn of_workspace(
    call: Call<Read>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let scope = Scope { workspace: call.workspace().to_string(), sandbox: None };
    answer(&call.app, scope, &params, &headers)
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
    let old = match sse::last_event_id(headers) {
        Some(number) => scope.after(app, number)?,
        None => scope.newest(app, params.tail())?,
    };
    if !params.follows() {
        return Ok(Json(EventList { events: old.into_wire() }).into_response());
    }
    Ok(sse::endless(app.closing(), move |events| {
        sse::follow(events, old, live, move |event: Event| {
            scope.holds(&event).then(|| (event.number.unsigned_abs(), event.into_wire()))
        })
    }))
}
