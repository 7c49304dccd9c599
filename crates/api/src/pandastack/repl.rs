//! Code that runs in a new interpreter, which is closed afterwards.

use axum::routing::{get, post};
use sandling_wire::{CellResult, CreateSession, LanguageName, RunCell};
use serde::{Deserialize, Serialize};

use crate::cell::RunningCell;
use crate::convert::exec::language_name;
use crate::convert::repl::context_spec;
use crate::prelude::*;
use crate::recorder::Recorder;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/v1/sandboxes/{id}/repl", post(run)).route("/v1/repl/languages", get(languages))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeRequest {
    /// Python if absent.
    language: Option<LanguageName>,
    code: String,
    timeout_ms: Option<u64>,
}

#[derive(Serialize)]
struct CodeResult {
    language: &'static str,
    #[serde(flatten)]
    result: CellResult,
}

async fn run(call: SandboxCall<Run>, body: JsonBody<CodeRequest>) -> Result<Json<CodeResult>, ApiError> {
    let CodeRequest { language, code, timeout_ms } = body.value;
    let mut spec = context_spec(CreateSession { language, ..CreateSession::default() })?;
    call.sandbox.info().settings.process.fill_context(&mut spec);
    let session = call.sandbox.create_context(spec).await?.id;
    let recorder = Recorder::new(&call.app, &call.context, call.sandbox.id(), code.clone());
    let request = RunCell { code, timeout_ms, output_limit: None };
    let result = match RunningCell::start(&call.app, &call.sandbox, &session, &request).await {
        Ok(cell) => cell.finish(recorder, None).await,
        Err(error) => Err(error),
    };
    // The result is complete. An interpreter that fails to close ends with its call.sandbox.
    let _ = call.sandbox.close_context(&session).await;
    Ok(Json(CodeResult { language: language_name(language.unwrap_or_default().into_engine()), result: result? }))
}

/// The languages of sessions. Bash has no sessions; it runs as a command with `code`.
async fn languages(_: Caller<Read>) -> Json<[&'static str; 2]> {
    Json(["python", "node"])
}
