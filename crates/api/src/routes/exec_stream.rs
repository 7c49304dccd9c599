//! Commands whose output is sent while they run.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Run};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::follow::{self, Relay};
use crate::recorder::Recorder;
use crate::request::RequestContext;
use crate::sse;
use crate::wire::exec::ExecRequest;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(run))
}

/// Run a command and follow its output
///
/// Events: `start`, `stdout` and `stderr` with a `chunk`, then `exit` with the `exit_code`; before that an `error` if
/// the deadline passed. A client that goes away does not end the command: attach to it by its id.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/exec/stream", tag = "exec", request_body = ExecRequest,
    params(("id" = String, Path)),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn run(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    Parts(id): Parts<String>,
    body: JsonBody<ExecRequest>,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let timeout_seconds = body.value.timeout_seconds;
    let recorder = Recorder::new(&app, &context, sandbox.id(), body.value.text());
    let mut execution = follow::start(&app, &sandbox, body.value).await?;
    // A command that cannot start is refused with a status, not with an event.
    let (pid, existing) = follow::first(&mut execution).await?;
    Ok(sse::finite(move |events| async move {
        let relay = Relay::new(events, timeout_seconds, recorder);
        relay.started(execution.id(), pid, existing).await?;
        relay.run(execution).await
    }))
}
