//! Runs of `sandling agent` whose transcripts are in the home of this server.

use sandling_service::{AgentRun, RunState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read))
}

#[derive(Serialize, ToSchema)]
struct AgentRunView {
    id: String,
    /// `running`, `ended`, or `interrupted` if the process stopped without recording an end.
    state: &'static str,
    /// When it last wrote to its transcript.
    changed_at: String,
    bytes: u64,
    task: Option<String>,
    model: Option<String>,
    started_at: Option<String>,
    /// The first sandbox that it used.
    sandbox_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct AgentRunList {
    runs: Vec<AgentRunView>,
}

#[derive(Serialize, ToSchema)]
struct AgentTranscript {
    /// Lines as docs/agent.md describes them.
    lines: Vec<Value>,
    /// The byte to continue from.
    next: u64,
    /// As in the list of runs.
    state: &'static str,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TranscriptParams {
    /// The byte to read from: 0, or `next` of an earlier response.
    from: Option<u64>,
}

/// List runs of `sandling agent`
///
/// Those whose transcripts are in the home directory of the server: the newest 200, the newest first. They belong to the
/// owner of the home, so the token must be an operator's.
#[utoipa::path(get, path = "/v1/agent/runs", responses((status = 200, body = AgentRunList)))]
async fn list(call: Call<Operator>) -> Result<Json<AgentRunList>, ApiError> {
    let runs = call.app.service.agent_runs.list().map_err(|error| ApiError::internal(&error))?;
    Ok(Json(AgentRunList { runs: runs.into_iter().map(view).collect() }))
}

/// Read the transcript of a run
///
/// A response has at most 1 MiB of it. Ask again with `from` until there are no more lines, and while it is running.
#[utoipa::path(
    get, path = "/v1/agent/runs/{run}", params(TranscriptParams), responses((status = 200, body = AgentTranscript)),
)]
async fn read(
    call: Call<Operator>,
    Params(params): Params<TranscriptParams>,
) -> Result<Json<AgentTranscript>, ApiError> {
    let found = call.app.service.agent_runs.read(&call.item, params.from.unwrap_or_default());
    let part = found.map_err(|error| ApiError::internal(&error))?.ok_or_else(|| ApiError::not_found("run"))?;
    Ok(Json(AgentTranscript { lines: part.lines, next: part.next, state: name(part.state) }))
}

fn view(run: AgentRun) -> AgentRunView {
    let text = |name: &str| run.start[name].as_str().map(str::to_owned);
    AgentRunView {
        state: name(run.state),
        changed_at: run.changed_at.to_string(),
        bytes: run.bytes,
        task: text("task"),
        model: text("model"),
        started_at: text("time"),
        sandbox_id: text("sandbox"),
        id: run.id,
    }
}

fn name(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Ended => "ended",
        RunState::Interrupted => "interrupted",
    }
}
