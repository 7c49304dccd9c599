//! REPL sessions.

use axum::extract::FromRequestParts;
use axum::http::request::Parts as HttpParts;
use sandling_engine::Sandbox;
use sandling_wire::{CellResult, CreateSession, ErrorBody, RunCell, SessionView};

use crate::cell::{RunningCell, session_missing};
use crate::convert::exec::checked_id;
use crate::convert::repl::{context_spec, session_view};
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(run))
        .routes(routes!(run_stream))
        .routes(routes!(close))
        .routes(routes!(interrupt))
        .routes(routes!(restart))
}

/// List REPL sessions
#[utoipa::path(get, path = "/v1/sandboxes/{id}/repl/sessions", responses((status = 200, body = Vec<SessionView>)))]
async fn list(call: SandboxCall<Read>) -> Result<Json<Vec<SessionView>>, ApiError> {
    let contexts = call.sandbox.list_contexts().await?;
    Ok(Json(contexts.into_iter().map(|info| session_view(call.sandbox.id().as_str(), info)).collect()))
}

/// Start a REPL session
///
/// A live interpreter that keeps its variables between cells.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions", request_body = Option<CreateSession>,
    responses((status = 201, body = SessionView)),
)]
async fn create(
    call: SandboxCall<Run>,
    body: JsonBody<CreateSession>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let mut spec = context_spec(body.value)?;
    call.sandbox.info().settings.process.fill_context(&mut spec);
    let info = call.sandbox.create_context(spec).await?;
    call.context.made(&info.id);
    Ok((StatusCode::CREATED, Json(session_view(call.sandbox.id().as_str(), info))))
}

/// Run a cell
///
/// A timeout interrupts the cell; the response is then a 504 with the output so far.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/run", request_body = RunCell,
    responses(
        (status = 200, body = CellResult),
        (status = 504, description = "The timeout was reached; with the output so far", body = ErrorBody),
    ),
)]
async fn run(session: Session, body: JsonBody<RunCell>) -> Result<Json<CellResult>, ApiError> {
    let (cell, recorder) = session.start(&body.value).await?;
    Ok(Json(cell.finish(recorder, None).await?))
}

/// Run a cell and follow its output
///
/// Events: `stdout` and `stderr` with a `chunk`, then `result`, which is the response of the call without a stream, or
/// `error` with the `status` of that call. The cell continues if the client disconnects.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/run/stream", request_body = RunCell,
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn run_stream(session: Session, body: JsonBody<RunCell>) -> Result<Response, ApiError> {
    let (cell, recorder) = session.start(&body.value).await?;
    let request = session.context.id().to_owned();
    Ok(sse::finite(move |events| async move {
        match cell.finish(recorder, Some(&events)).await {
            Ok(result) => events.send("result", &result).await,
            Err(error) => events.send("error", &error.body_with_status(&request)).await,
        }
    }))
}

/// End a REPL session
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/repl/sessions/{session}", responses((status = 204)))]
async fn close(Session { sandbox, id, .. }: Session) -> Result<StatusCode, ApiError> {
    sandbox.close_context(&id).await.map_err(session_missing)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Interrupt the running cell of a REPL session
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/interrupt", responses((status = 204)))]
async fn interrupt(Session { sandbox, id, .. }: Session) -> Result<StatusCode, ApiError> {
    sandbox.interrupt_context(&id).await.map_err(session_missing)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restart a REPL session
///
/// It loses its variables and keeps its id.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/restart", responses((status = 200, body = SessionView)),
)]
async fn restart(Session { sandbox, id, .. }: Session) -> Result<Json<SessionView>, ApiError> {
    let info = sandbox.restart_context(&id).await.map_err(session_missing)?;
    Ok(Json(session_view(sandbox.id().as_str(), info)))
}

/// The session that a path names, for a caller with the scope `run`. Only the guest knows whether it exists.
struct Session {
    app: Arc<App>,
    context: RequestContext,
    sandbox: Arc<Sandbox>,
    id: String,
}

impl Session {
    async fn start(&self, request: &RunCell) -> Result<(RunningCell, Recorder), ApiError> {
        let recorder = Recorder::new(&self.app, &self.context, self.sandbox.id(), request.code.clone());
        Ok((RunningCell::start(&self.app, &self.sandbox, &self.id, request).await?, recorder))
    }
}

impl FromRequestParts<Arc<App>> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut HttpParts, app: &Arc<App>) -> Result<Self, ApiError> {
        let SandboxCall { app, context, sandbox, item, .. } =
            SandboxCall::<Run>::from_request_parts(parts, app).await?;
        // No session has an invalid id, so the answer is 404.
        let id = checked_id(item).map_err(|_| ApiError::not_found("session"))?;
        Ok(Self { app, context, sandbox, id })
    }
}
