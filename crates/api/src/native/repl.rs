//! REPL sessions.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts as HttpParts;
use axum::response::Response;
use axum::{Extension, Json};
use sandling_engine::{Cause, Cell, CellOutput, LinkError, Sandbox, UseError};
use sandling_protocol::{CellStatus, ContextSpec, FailureKind};
use sandling_wire::{CellResult, CreateSession, ErrorBody, OnceResult, RunCell, RunOnce, SessionView};
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::context::RequestContext;
use crate::convert::exec::{checked_id, language_name, output_limit};
use crate::convert::repl::{cell_result, context_spec, session_view};
use crate::convert::{IntoEngine, seconds};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::recorder::Recorder;
use crate::sse::{self, Events};
use crate::text::{Decoder, lossy};

/// The default timeout of a cell.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(run))
        .routes(routes!(run_stream))
        .routes(routes!(close))
        .routes(routes!(interrupt))
        .routes(routes!(restart))
        .routes(routes!(run_once))
        .routes(routes!(languages))
}

/// List REPL sessions
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/repl/sessions", tag = "repl", params(("id" = String, Path)),
    responses((status = 200, body = Vec<SessionView>)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let contexts = sandbox.list_contexts().await?;
    Ok(Json(contexts.into_iter().map(|info| session_view(sandbox.id().as_str(), info)).collect()))
}

/// Start a REPL session
///
/// A live interpreter that keeps its variables between cells.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions", tag = "repl", params(("id" = String, Path)),
    request_body = Option<CreateSession>,
    responses((status = 201, body = SessionView)),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    Parts(id): Parts<String>,
    body: JsonBody<CreateSession>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let mut spec = context_spec(body.value)?;
    sandbox.info().settings.process.fill_context(&mut spec);
    let info = sandbox.create_context(spec).await?;
    context.made(&info.id);
    Ok((StatusCode::CREATED, Json(session_view(sandbox.id().as_str(), info))))
}

/// Run a cell
///
/// A timeout interrupts the cell; the response is then a 504 with the output so far.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/run", tag = "repl", request_body = RunCell,
    params(("id" = String, Path), ("session" = String, Path)),
    responses(
        (status = 200, body = CellResult),
        (status = 504, description = "The timeout was reached; with the output so far", body = ErrorBody),
    ),
)]
async fn run(
    State(app): State<Arc<App>>,
    Extension(context): Extension<RequestContext>,
    Session { sandbox, id }: Session,
    body: JsonBody<RunCell>,
) -> Result<Json<CellResult>, ApiError> {
    let recorder = Recorder::new(&app, &context, sandbox.id(), body.value.code.clone());
    cell(&app, &sandbox, &id, body.value, recorder).await
}

/// Run a cell and follow its output
///
/// Events: `stdout` and `stderr` with a `chunk`, then `result`, which is the response of the call without a stream, or
/// `error` with the `status` of that call. The cell continues if the client disconnects.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/run/stream", tag = "repl", request_body = RunCell,
    params(("id" = String, Path), ("session" = String, Path)),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn run_stream(
    State(app): State<Arc<App>>,
    Extension(context): Extension<RequestContext>,
    Session { sandbox, id }: Session,
    body: JsonBody<RunCell>,
) -> Result<Response, ApiError> {
    let recorder = Recorder::new(&app, &context, sandbox.id(), body.value.code.clone());
    let begun = begin(&app, &sandbox, &id, &body.value).await?;
    let request = context.id().to_owned();
    Ok(sse::finite(move |events| async move {
        match finish(begun, recorder, Some(&events)).await {
            Ok(result) => events.send("result", &result).await,
            Err(error) => {
                let mut body = error.body(&request);
                body["status"] = error.status.as_u16().into();
                events.send("error", &body).await
            }
        }
    }))
}

async fn cell(
    app: &App,
    sandbox: &Arc<Sandbox>,
    session: &str,
    request: RunCell,
    recorder: Recorder,
) -> Result<Json<CellResult>, ApiError> {
    let begun = begin(app, sandbox, session, &request).await?;
    finish(begun, recorder, None).await.map(Json)
}

/// A running cell and its timeout.
struct Begun {
    cell: Cell,
    seconds: f64,
}

async fn begin(app: &App, sandbox: &Arc<Sandbox>, session: &str, request: &RunCell) -> Result<Begun, ApiError> {
    let seconds = request.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS) as f64 / 1e3;
    let timeout = seconds::deadline("timeout_ms / 1000", Some(seconds))?;
    let limit = output_limit(request.output_limit)?;
    app.engine.before(sandbox, Cause::Cell, &request.code).await?;
    Ok(Begun { cell: sandbox.run_cell(session, &request.code, timeout, limit)?, seconds })
}

async fn finish(begun: Begun, recorder: Recorder, events: Option<&Events>) -> Result<CellResult, ApiError> {
    let (result, status) = gather(begun.cell, recorder, events).await?;
    if status == CellStatus::Timeout {
        let error = ApiError::command_timeout(begun.seconds);
        return Err(error.with("stdout", result.stdout).with("stderr", result.stderr));
    }
    Ok(result)
}

/// Sends output to the client. If it has disconnected, the cell continues without it.
async fn tell(events: Option<&Events>, name: &str, decoder: &mut Decoder, bytes: &[u8]) {
    let text = decoder.push(bytes);
    if let Some(events) = events.filter(|_| !text.is_empty()) {
        let _ = events.send(name, &json!({ "chunk": text })).await;
    }
}

async fn gather(
    mut cell: Cell,
    mut recorder: Recorder,
    events: Option<&Events>,
) -> Result<(CellResult, CellStatus), ApiError> {
    let (mut stdout, mut stderr, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let (mut out, mut err) = (Decoder::default(), Decoder::default());
    loop {
        match cell.next().await {
            Ok(CellOutput::Stdout(bytes)) => {
                recorder.heard(&bytes);
                tell(events, "stdout", &mut out, &bytes).await;
                stdout.extend(bytes);
            }
            Ok(CellOutput::Stderr(bytes)) => {
                recorder.heard(&bytes);
                tell(events, "stderr", &mut err, &bytes).await;
                stderr.extend(bytes);
            }
            Ok(CellOutput::Result(result) | CellOutput::Value(result)) => {
                recorder.heard_result(&result);
                results.push(result);
            }
            Ok(CellOutput::Done(report)) => {
                recorder.heard_end(&report);
                let status = report.status;
                return Ok((cell_result(lossy(stdout), lossy(stderr), results, report), status));
            }
            Err(error) => {
                return Err(refused(error).with("stdout", lossy(stdout)).with("stderr", lossy(stderr)));
            }
        }
    }
}

/// End a REPL session
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/repl/sessions/{session}", tag = "repl",
    params(("id" = String, Path), ("session" = String, Path)),
    responses((status = 204)),
)]
async fn close(Session { sandbox, id }: Session) -> Result<StatusCode, ApiError> {
    sandbox.close_context(&id).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Interrupt the running cell of a REPL session
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/interrupt", tag = "repl",
    params(("id" = String, Path), ("session" = String, Path)),
    responses((status = 204)),
)]
async fn interrupt(Session { sandbox, id }: Session) -> Result<StatusCode, ApiError> {
    sandbox.interrupt_context(&id).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restart a REPL session
///
/// It loses its variables and keeps its id.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/restart", tag = "repl",
    params(("id" = String, Path), ("session" = String, Path)),
    responses((status = 200, body = SessionView)),
)]
async fn restart(Session { sandbox, id }: Session) -> Result<Json<SessionView>, ApiError> {
    let info = sandbox.restart_context(&id).await.map_err(refused)?;
    Ok(Json(session_view(sandbox.id().as_str(), info)))
}

/// Run code in a new interpreter
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl", tag = "repl", params(("id" = String, Path)), request_body = RunOnce,
    responses(
        (status = 200, body = OnceResult),
        (status = 504, description = "The timeout was reached; with the output so far", body = ErrorBody),
    ),
)]
async fn run_once(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    Parts(id): Parts<String>,
    body: JsonBody<RunOnce>,
) -> Result<Json<OnceResult>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let RunOnce { language, code, timeout_ms } = body.value;
    let language = language.unwrap_or_default().into_engine();
    let id = sandling_service::random::hex::<8>();
    let mut spec = ContextSpec { id, language, cwd: None, env: Default::default(), user: None };
    sandbox.info().settings.process.fill_context(&mut spec);
    let session = sandbox.create_context(spec).await?.id;
    let recorder = Recorder::new(&app, &context, sandbox.id(), code.clone());
    let result = cell(&app, &sandbox, &session, RunCell { code, timeout_ms, output_limit: None }, recorder).await;
    // The result is complete. An interpreter that fails to close ends with its sandbox.
    let _ = sandbox.close_context(&session).await;
    Ok(Json(OnceResult { language: language_name(language), result: result?.0 }))
}

/// List the languages of REPL sessions
///
/// Bash has no sessions; run it as a command with `code`.
#[utoipa::path(get, path = "/v1/repl/languages", tag = "repl", responses((status = 200, body = Vec<String>)))]
async fn languages(_: Caller<Read>) -> Json<Vec<&'static str>> {
    Json(vec!["python", "node"])
}

/// The session that a path names, for a caller with the scope `run`. Only the guest knows whether it exists.
struct Session {
    sandbox: Arc<Sandbox>,
    id: String,
}

impl FromRequestParts<Arc<App>> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut HttpParts, app: &Arc<App>) -> Result<Self, ApiError> {
        let caller = Caller::<Run>::from_request_parts(parts, app).await?;
        let Parts((sandbox, id)) = Parts::<(String, String)>::from_request_parts(parts, app).await?;
        let sandbox = caller.sandbox(app, &sandbox).await?;
        // No session has an invalid id, so the answer is 404.
        let id = checked_id(id).map_err(|_| ApiError::not_found("session"))?;
        Ok(Self { sandbox, id })
    }
}

/// If the guest does not find something here, it is the session.
fn refused(error: UseError) -> ApiError {
    match error {
        UseError::Link(LinkError::Failed(failure)) if failure.kind == FailureKind::NotFound => {
            ApiError::not_found("session")
        }
        other => other.into(),
    }
}
