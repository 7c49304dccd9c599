//! Commands whose response comes when they have ended.

use sandling_engine::Sandbox;
use sandling_protocol::ExitReason;
use sandling_wire::{Detached, ErrorBody, ExecRequest, ExecResult};

use crate::convert::exec::exec_result;
use crate::follow;
use crate::idempotency::{Answer, IdempotentRequest};
use crate::prelude::*;
use crate::recorder::Recorder;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(run))
}

/// Run a command and wait for its end
///
/// With `detached`, the response comes as soon as the command runs. A timeout ends the whole process group of the
/// command; the response is then a 504 with the output so far. An `Idempotency-Key` makes a retry safe: the same key
/// returns the same response and runs nothing again.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/exec", request_body = ExecRequest,
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[ -~]{1,255}$")),
    responses(
        (status = 200, body = ExecResult),
        (status = 202, body = Detached),
        (status = 504, description = "The timeout was reached; with the output so far", body = ErrorBody),
    ),
)]
async fn run(call: SandboxCall<Run>, headers: HeaderMap, body: JsonBody<ExecRequest>) -> Result<Response, ApiError> {
    let (app, context, sandbox, workspace) = (&call.app, &call.context, &call.sandbox, call.workspace());
    let route = format!("POST /v1/sandboxes/{}/exec", sandbox.id());
    IdempotentRequest { app, context, workspace, headers: &headers, route: &route, body: &body.bytes }
        .answer(|mark| async move {
            let recorder = Recorder::new(app, context, sandbox.id(), body.value.text());
            if body.value.detached.unwrap_or_default() {
                let detached = follow::detach(app, sandbox, body.value, recorder).await?;
                mark.made(&detached.id);
                return Ok(Answer::json(StatusCode::ACCEPTED, &detached));
            }
            wait(app, sandbox, body.value, recorder).await
        })
        .await
}

async fn wait(app: &App, sandbox: &Arc<Sandbox>, request: ExecRequest, recorder: Recorder) -> Result<Answer, ApiError> {
    let timeout = request.timeout_seconds;
    let execution = follow::start(app, sandbox, request).await?;
    let id = execution.id().to_owned();
    let collected = follow::gather(execution, recorder).await?;
    let timed_out = collected.exit.reason == ExitReason::Timeout;
    let result = exec_result(&id, collected);
    if timed_out {
        return Err(ApiError::command_timeout(timeout.unwrap_or_default()).with_fields(&result));
    }
    Ok(Answer::json(StatusCode::OK, &result))
}
