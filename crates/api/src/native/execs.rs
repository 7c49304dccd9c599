//! Commands after their start: list, attach, signal, get the result.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use sandling_engine::Sandbox;
use sandling_protocol::{ExecInfo, ExecState};
use sandling_wire::{AttachParams, ExecList, ExecResult, ExecView, ResultParams, SignalRequest};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::IntoWire;
use crate::convert::exec::{checked_id, exec_result, signal_number};
use crate::error::ApiError;
use crate::extract::{JsonBody, Params, Parts};
use crate::follow::{self, Relay};
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
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs", tag = "exec", params(("id" = String, Path)),
    responses((status = 200, body = ExecList)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<ExecList>, ApiError> {
    let execs = caller.sandbox(&app, &id).await?.list_execs().await?;
    Ok(Json(ExecList { execs: execs.into_iter().map(IntoWire::into_wire).collect() }))
}

/// Look at one command
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}", tag = "exec",
    params(("id" = String, Path), ("exec" = String, Path)),
    responses((status = 200, body = ExecView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts((id, exec)): Parts<(String, String)>,
) -> Result<Json<ExecView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    Ok(Json(find(&sandbox, &exec).await?.into_wire()))
}

/// Drop a command's record and output
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/execs/{exec}", tag = "exec",
    params(("id" = String, Path), ("exec" = String, Path)),
    responses((status = 204)),
)]
async fn forget(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((id, exec)): Parts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    sandbox.forget_exec(&checked_id(exec)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Attach to a command
///
/// Replays its output from byte `from`, then follows it. The events are those of `exec/stream`. A reconnecting
/// `EventSource` continues where it stopped.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}/output", tag = "exec",
    params(("id" = String, Path), ("exec" = String, Path), AttachParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn output(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts((id, exec)): Parts<(String, String)>,
    Params(params): Params<AttachParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let exec = find(&sandbox, &checked_id(exec)?).await?.id;
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let execution = sandbox.attach(&exec, last_seen.unwrap_or(params.from))?;
    Ok(sse::finite(move |events| Relay::new(events, None, Recorder::off()).run(execution)))
}

/// The result of a command
///
/// Its stored output, and how it ended. While it runs, the response is a 409 unless `wait` is set.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}/result", tag = "exec",
    params(("id" = String, Path), ("exec" = String, Path), ResultParams),
    responses((status = 200, body = ExecResult)),
)]
async fn result(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts((id, exec)): Parts<(String, String)>,
    Params(params): Params<ResultParams>,
) -> Result<Json<ExecResult>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let info = find(&sandbox, &checked_id(exec)?).await?;
    if matches!(info.state, ExecState::Running) && !params.wait {
        return Err(ApiError::conflict("exec_running", "the command still runs"));
    }
    let collected = follow::gather(sandbox.attach(&info.id, 0)?, Recorder::off()).await?;
    Ok(Json(exec_result(&info.id, collected)))
}

/// Send a signal to a command
///
/// The signal goes to its whole process group.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execs/{exec}/signal", tag = "exec", request_body = SignalRequest,
    params(("id" = String, Path), ("exec" = String, Path)),
    responses((status = 204)),
)]
async fn signal(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((id, exec)): Parts<(String, String)>,
    body: JsonBody<SignalRequest>,
) -> Result<StatusCode, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    sandbox.signal(&checked_id(exec)?, signal_number(&body.value)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn find(sandbox: &Sandbox, exec: &str) -> Result<ExecInfo, ApiError> {
    let execs = sandbox.list_execs().await?;
    execs.into_iter().find(|info| info.id == exec).ok_or_else(|| ApiError::not_found("exec"))
}
