//! Code in a sandbox's default interpreter, which keeps its variables between calls.

use sandling_wire::{CellResult, ErrorBody, RunCode};
use tokio_util::sync::CancellationToken;

use crate::default_cell::CheckedCode;
use crate::prelude::*;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(run)).routes(routes!(run_stream))
}

/// Run code that keeps its variables
///
/// The sandbox has one default interpreter for Python and one for Node. The first call starts it. Calls wait for each
/// other, and a fork has the variables of its parent. A timeout interrupts the code; the response is then a 504 with the
/// output so far. The code continues if the client disconnects.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/run-code", request_body = RunCode,
    responses(
        (status = 200, body = CellResult),
        (status = 504, description = "The timeout was reached; with the output so far", body = ErrorBody),
    ),
)]
async fn run(call: SandboxCall<Run>, body: JsonBody<RunCode>) -> Result<Json<CellResult>, ApiError> {
    let code = CheckedCode::new(body.value)?.in_sandbox(&call.app, &call.context, &call.sandbox);
    Ok(Json(code.run(None, &CancellationToken::new()).await?))
}

/// Run code that keeps its variables, and follow its output
///
/// Events: `stdout` and `stderr` with a `chunk`, then `result`, which is the response of the call without a stream, or
/// `error` with the `status` of that call. If the client disconnects, the code is interrupted.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/run-code/stream", request_body = RunCode,
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn run_stream(call: SandboxCall<Run>, body: JsonBody<RunCode>) -> Result<Response, ApiError> {
    let code = CheckedCode::new(body.value)?.in_sandbox(&call.app, &call.context, &call.sandbox);
    let request = call.context.id().to_owned();
    let gone = CancellationToken::new();
    Ok(sse::finite(move |events| async move {
        // This task is dropped when the client disconnects. The run is a task of its own, which still has to end.
        let _interrupt_if_dropped = gone.clone().drop_guard();
        let running = tokio::spawn(async move {
            match code.run(Some(&events), &gone).await {
                Ok(result) => events.send("result", &result).await,
                Err(error) => events.send("error", &error.body_with_status(&request)).await,
            }
        });
        running.await.unwrap_or(Ok(()))
    }))
}
