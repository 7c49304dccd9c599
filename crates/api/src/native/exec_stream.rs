//! Commands whose output is streamed.

use sandling_engine::{Execution, Sandbox};
use sandling_wire::ExecRequest;

use super::execs;
use crate::follow::{self, Relay};
use crate::idempotency::{Begun, IdempotentRequest, replayed};
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(run))
}

/// Run a command and follow its output
///
/// Events: `start`, `stdout` and `stderr` with a `chunk`, then `exit` with the `exit_code`, preceded by an `error` if
/// the timeout was reached. The command continues if the client disconnects; attach to it by its id. An
/// `Idempotency-Key` makes a retry safe: the same key follows the same command from its first output.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/exec/stream", request_body = ExecRequest,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[ -~]{1,255}$")),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn run(call: SandboxCall<Run>, headers: HeaderMap, body: JsonBody<ExecRequest>) -> Result<Response, ApiError> {
    let (app, context, sandbox, workspace) = (&call.app, &call.context, &call.sandbox, call.workspace());
    let JsonBody { value: mut request, bytes } = body;
    let route = format!("POST /v1/sandboxes/{}/exec/stream", sandbox.id());
    let idempotent = IdempotentRequest { app, context, workspace, headers: &headers, route: &route, body: &bytes };
    let timeout_seconds = request.timeout_seconds;
    let exec = request.id.get_or_insert_with(sandling_service::random::hex::<16>).clone();
    let begun = idempotent.begin(&exec, || async move {
        let recorder = Recorder::new(app, context, sandbox.id(), request.text());
        let running = Running::of(follow::start(app, sandbox, request).await?).await?;
        Ok((running, recorder))
    });
    match begun.await? {
        Begun::Now((running, recorder)) => Ok(running.streamed(timeout_seconds, recorder)),
        Begun::Before { object, refusal } => {
            let running = attach(sandbox, &object, refusal).await?;
            Ok(replayed(running.streamed(timeout_seconds, Recorder::off())))
        }
        Begun::Failed(answer) => Ok(answer),
    }
}

/// A command that an earlier request started, or the refusal if the guest no longer knows it.
async fn attach(sandbox: &Arc<Sandbox>, exec: &str, refusal: ApiError) -> Result<Running, ApiError> {
    match execs::find(sandbox, exec).await {
        Ok(found) => Running::of(sandbox.attach(&found.id, 0)?).await,
        Err(error) if error.status == StatusCode::NOT_FOUND => Err(refusal),
        Err(error) => Err(error),
    }
}

/// A command that has started.
struct Running {
    execution: Execution,
    pid: u32,
    existing: bool,
}

impl Running {
    /// A command that cannot start is refused with a status, not with an event.
    async fn of(mut execution: Execution) -> Result<Self, ApiError> {
        let (pid, existing) = follow::first(&mut execution).await?;
        Ok(Self { execution, pid, existing })
    }

    fn streamed(self, timeout_seconds: Option<f64>, recorder: Recorder) -> Response {
        let Self { execution, pid, existing } = self;
        sse::finite(move |events| async move {
            let relay = Relay::new(events, timeout_seconds, recorder);
            relay.started(execution.id(), pid, existing).await?;
            relay.run(execution).await
        })
    }
}
