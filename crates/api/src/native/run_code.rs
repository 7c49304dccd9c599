//! Code in a sandbox's default interpreter, which keeps its variables between calls.

use sandling_engine::{Cause, Sandbox};
use sandling_protocol::{CellSpec, ContextSpec};
use sandling_wire::{CellResult, ErrorBody, LanguageName, RunCode};
use tokio_util::sync::CancellationToken;

use crate::cell::RunningCell;
use crate::convert::exec::output_limit;
use crate::convert::sandbox::check_env;
use crate::convert::seconds;
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::sse::{self, Events};

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
    let code = DefaultCell::new(&call, body.value)?;
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
    let code = DefaultCell::new(&call, body.value)?;
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

/// Code for the default interpreter of its language.
struct DefaultCell {
    app: Arc<App>,
    sandbox: Arc<Sandbox>,
    context: ContextSpec,
    code: String,
    cell: CellSpec,
    timeout_seconds: f64,
    recorder: Recorder,
}

impl DefaultCell {
    fn new(call: &SandboxCall<Run>, request: RunCode) -> Result<Self, ApiError> {
        let RunCode { code, language, timeout_seconds, output_limit: limit, env } = request;
        let id = match language {
            LanguageName::Python => "default-python",
            LanguageName::Node => "default-node",
            LanguageName::Bash => {
                let message =
                    "bash keeps no variables between calls; run it with `exec`, as `code` with this `language`";
                return Err(ApiError::bad_request(message));
            }
        };
        let env = env.unwrap_or_default();
        check_env(&env)?;
        let timeout = seconds::deadline("timeout_seconds", timeout_seconds)?;
        let mut context = ContextSpec {
            id: id.to_owned(),
            language: language.into_engine(),
            cwd: None,
            env: Default::default(),
            user: None,
        };
        call.sandbox.info().settings.process.fill_context(&mut context);
        let cell = CellSpec {
            context: id.to_owned(),
            timeout_ms: timeout.map(|timeout| timeout.as_millis() as u64),
            output_limit: output_limit(limit)?,
            env,
            typescript: false,
        };
        let recorder = Recorder::new(&call.app, &call.context, call.sandbox.id(), code.clone());
        let (app, sandbox) = (call.app.clone(), call.sandbox.clone());
        // Without a timeout the value is not used.
        let timeout_seconds = timeout_seconds.unwrap_or_default();
        Ok(Self { app, sandbox, context, code, cell, timeout_seconds, recorder })
    }

    /// Runs the code when the runs before it have ended. Interrupts it when the client is `gone`.
    async fn run(self, events: Option<&Events>, gone: &CancellationToken) -> Result<CellResult, ApiError> {
        let lane = self.app.cell_lanes.lane(self.sandbox.id(), &self.context.id);
        let _turn = tokio::select! {
            turn = lane.lock() => turn,
            () = gone.cancelled() => return Err(ApiError::bad_request("the client has disconnected")),
        };
        self.app.engine.before(&self.sandbox, Cause::Cell, &self.code).await?;
        let id = self.context.id.clone();
        let cell = self.sandbox.run_first_cell(self.context, self.cell, &self.code).await?;
        let mut finished = std::pin::pin!(RunningCell::of(cell, self.timeout_seconds).finish(self.recorder, events));
        tokio::select! {
            result = &mut finished => return result,
            () = gone.cancelled() => {}
        }
        // The next run must not wait for this one.
        let _ = self.sandbox.interrupt_context(&id).await;
        finished.await
    }
}
