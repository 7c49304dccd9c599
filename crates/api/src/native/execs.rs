//! Commands after their start: list, attach, signal, get the result.

use sandling_engine::Sandbox;
use sandling_protocol::{ExecInfo, ExecState};
use sandling_wire::{AttachParams, ExecList, ExecResult, ExecView, ResultParams, SignalRequest};

use crate::convert::exec::{checked_id, exec_result, signal_number};
use crate::follow::{self, Relay};
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get, forget))
        .routes(routes!(output))
        .routes(routes!(result))
        .routes(routes!(signal))
}

/// List commands
///
/// Running commands, and ended ones whose output is still stored.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/execs", responses((status = 200, body = ExecList)))]
async fn list(call: SandboxCall<Read>) -> Result<Json<ExecList>, ApiError> {
    let execs = call.sandbox.list_execs().await?;
    Ok(Json(ExecList { execs: execs.into_wire() }))
}

/// Look at one command
#[utoipa::path(get, path = "/v1/sandboxes/{id}/execs/{exec}", responses((status = 200, body = ExecView)))]
async fn get(call: SandboxCall<Read>) -> Result<Json<ExecView>, ApiError> {
    Ok(Json(find(&call.sandbox, &call.item).await?.into_wire()))
}

/// Drop a command's record and output
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/execs/{exec}", responses((status = 204)))]
async fn forget(call: SandboxCall<Run>) -> Result<StatusCode, ApiError> {
    call.sandbox.forget_exec(&checked_id(call.item)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Attach to a command
///
/// Replays its output from byte `from`, then follows it. The events are those of `exec/stream`. A reconnecting
/// `EventSource` continues where it stopped.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}/output", params(AttachParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn output(
    call: SandboxCall<Read>,
    Params(params): Params<AttachParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let exec = find(&call.sandbox, &checked_id(call.item)?).await?.id;
    let execution = call.sandbox.attach(&exec, sse::last_event_id(&headers).unwrap_or(params.from))?;
    Ok(sse::finite(move |events| Relay::new(events, None, Recorder::off()).run(execution)))
}

/// The result of a command
///
/// Its stored output, and how it ended. While it runs, the response is a 409 unless `wait` is set.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}/result", params(ResultParams),
    responses((status = 200, body = ExecResult)),
)]
async fn result(call: SandboxCall<Read>, Params(params): Params<ResultParams>) -> Result<Json<ExecResult>, ApiError> {
    let info = find(&call.sandbox, &checked_id(call.item)?).await?;
    if matches!(info.state, ExecState::Running) && !params.wait {
        return Err(ApiError::conflict("exec_running", "the command still runs"));
    }
    let collected = follow::gather(call.sandbox.attach(&info.id, 0)?, Recorder::off()).await?;
    Ok(Json(exec_result(&info.id, collected)))
}

/// Send a signal to a command
///
/// The signal goes to its whole process group.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execs/{exec}/signal", request_body = SignalRequest, responses((status = 204)),
)]
async fn signal(call: SandboxCall<Run>, body: JsonBody<SignalRequest>) -> Result<StatusCode, ApiError> {
    call.sandbox.signal(&checked_id(call.item)?, signal_number(&body.value)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn find(sandbox: &Sandbox, exec: &str) -> Result<ExecInfo, ApiError> {
    let execs = sandbox.list_execs().await?;
    execs.into_iter().find(|info| info.id == exec).ok_or_else(|| ApiError::not_found("exec"))
}
