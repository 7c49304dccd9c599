//! Runs code, one cell at a time in each context.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::routing::post;
use sandling_engine::{Cause, Cell, CellOutput, Output, ProcessDefaults, RunSpec, Sandbox};
use sandling_protocol::{CellReport, CellSpec, CellStatus, ContextInfo, ExitReason, Language, Part, Program};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::bridge;
use super::contexts::{CellLanguage, known, make, spec};
use super::lines::{Lines, respond};
use super::result;
use crate::convert::sandbox::check_env;
use crate::e2b::gone::{is_gone, lost};
use crate::e2b::place::{Interpreter, Runner};
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::text::Decoder;

/// How long R's output waits for the end of its line. R prints a line in pieces, and E2B's clients expect it in one.
const REST_OF_LINE: Duration = Duration::from_millis(200);
/// The most output of one run, in bytes.
const OUTPUT_LIMIT: u64 = 64 * 1024 * 1024;

pub(super) fn router(below: &str) -> Router<Arc<App>> {
    Router::new().route(&format!("{below}/execute"), post(execute))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExecuteRequest {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

async fn execute(
    State(app): State<Arc<App>>,
    runner: Runner,
    Extension(request): Extension<RequestContext>,
    body: JsonBody<ExecuteRequest>,
) -> Result<Response, ApiError> {
    let Runner(Interpreter { sandbox, settings, .. }) = runner;
    let ExecuteRequest { code, context_id, language, env_vars } = body.value;
    let env = env_vars.unwrap_or_default();
    check_env(&env)?;
    let language = language.filter(|language| !language.is_empty());
    let (id, cells, usual) = match (context_id.filter(|id| !id.is_empty()), language) {
        (Some(_), Some(_)) => return Err(ApiError::bad_request("Only one of context_id or language can be given")),
        (Some(id), None) => {
            let info = find(&sandbox, &settings.start, id).await?;
            (info.id, Some(info.cells), None)
        }
        (None, language) => {
            let cell_language = CellLanguage::parse(language.as_deref().unwrap_or("python"))?;
            if cell_language == CellLanguage::Bash {
                app.engine.before(&sandbox, Cause::Exec, &code).await?;
                return Ok(script(&app, &request, &sandbox, &settings.start, code, env));
            }
            let usual = spec(&sandbox, &settings.start, cell_language.usual(), cell_language, None);
            (cell_language.usual(), None, Some(usual))
        }
    };
    let recorder = Recorder::new(&app, &request, sandbox.id(), code.clone());
    let lane = app.cell_lanes.lane(sandbox.id(), &id);
    let language = CellLanguage::named_by(&id);
    let typescript = language == Some(CellLanguage::TypeScript);
    let (source, env) = match language.and_then(|language| bridge::python(language, &code, &env)) {
        Some(python) => (python, BTreeMap::new()),
        None => (code.clone(), env),
    };
    let spec = CellSpec { context: id, timeout_ms: None, output_limit: OUTPUT_LIMIT, env, typescript };
    let turn = lane.clone().try_lock_owned().ok();
    // The cell's number is known at once, unless other cells run before it.
    let (begun, number) = match (usual, &turn) {
        (Some(usual), Some(_)) => {
            app.engine.before(&sandbox, Cause::Cell, &code).await?;
            let (cell, number) = sandbox.run_first_cell(usual, spec.clone(), &source).await?;
            (Some(cell), Some(number))
        }
        (Some(usual), None) => sandbox.create_context(usual).await.map(|_| (None, None))?,
        (None, turn) => (None, cells.filter(|_| turn.is_some()).map(|cells| cells + 1)),
    };
    Ok(respond(app.closing(), move |lines| async move {
        let _turn = match turn {
            Some(turn) => turn,
            None => lane.lock_owned().await,
        };
        let ran = async {
            let number = match number {
                Some(number) => number,
                None => next_number(&sandbox, &spec.context).await?,
            };
            lines.number(number).await;
            let cell = match begun {
                Some(cell) => cell,
                None => {
                    app.engine.before(&sandbox, Cause::Cell, &code).await?;
                    sandbox.run_cell_of(spec.clone(), &source)?
                }
            };
            let report = follow(&sandbox, &spec.context, cell, &lines, recorder).await?;
            // A cell of another dialect may have run in between.
            if report.number != number {
                lines.number(report.number).await;
            }
            Ok(())
        };
        let ended = ran.await;
        finish(&sandbox, &lines, ended).await;
    }))
}

/// Finds a context that a client created, or a default one.
async fn find(sandbox: &Sandbox, start: &ProcessDefaults, id: String) -> Result<ContextInfo, ApiError> {
    let id = known(id)?;
    if let Some(info) = sandbox.list_contexts().await?.into_iter().find(|info| info.id == id) {
        return Ok(info);
    }
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("Context {id} not found"));
    let cell_language = CellLanguage::of_usual(&id).ok_or_else(missing)?;
    make(sandbox, start, id.clone(), cell_language, None).await
}

/// The number of the next cell in a context that runs none.
async fn next_number(sandbox: &Sandbox, id: &str) -> Result<u64, ApiError> {
    let contexts = sandbox.list_contexts().await?;
    Ok(contexts.iter().find(|info| info.id == id).map_or(1, |info| info.cells + 1))
}

async fn follow(
    sandbox: &Sandbox,
    context: &str,
    mut cell: Cell,
    lines: &Lines,
    mut recorder: Recorder,
) -> Result<CellReport, ApiError> {
    let language = CellLanguage::named_by(context);
    let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
    let (mut line, mut line_is_due) = (String::new(), Instant::now());
    let mut interrupted = false;
    loop {
        let output = tokio::select! {
            output = cell.next() => output?,
            () = tokio::time::sleep_until(line_is_due), if !line.is_empty() => {
                lines.output("stdout", take(&mut line)).await;
                continue;
            }
            () = lines.gone(), if !interrupted => {
                // The client is gone, so the run is interrupted. The next run must not wait for it.
                interrupted = true;
                let _ = sandbox.interrupt_context(context).await;
                continue;
            }
        };
        match output {
            CellOutput::Stdout(bytes) => {
                recorder.record(&bytes);
                if line.is_empty() {
                    line_is_due = Instant::now() + REST_OF_LINE;
                }
                line += &stdout.push(&bytes);
                if language != Some(CellLanguage::R) || line.ends_with('\n') {
                    for message in bridge::messages(language, take(&mut line)) {
                        lines.output("stdout", message).await;
                    }
                }
            }
            CellOutput::Stderr(bytes) => {
                recorder.record(&bytes);
                lines.output("stderr", stderr.push(&bytes)).await;
            }
            CellOutput::Value(bundle) => {
                recorder.record_result(&bundle);
                lines.send(&result::line(bundle, true)).await;
            }
            CellOutput::Result(bundle) => {
                recorder.record_result(&bundle);
                lines.send(&result::line(bundle, false)).await;
            }
            CellOutput::Done(report) => {
                recorder.record_error(&report);
                lines.output("stdout", line + &stdout.finish()).await;
                lines.output("stderr", stderr.finish()).await;
                tell_error(lines, &report).await;
                return Ok(report);
            }
        }
    }
}

async fn tell_error(lines: &Lines, report: &CellReport) {
    if let Some(error) = &report.error {
        lines.error(&error.name, &error.value, &error.text).await;
    } else if let Some((name, value)) = why(report.status) {
        lines.error(name, value, value).await;
    }
}

/// The error to report if the interpreter gave none.
fn why(status: CellStatus) -> Option<(&'static str, &'static str)> {
    match status {
        CellStatus::Ok => None,
        CellStatus::Error => Some(("Error", "the code failed")),
        CellStatus::Interrupted => Some(("KeyboardInterrupt", "the code was interrupted")),
        CellStatus::Timeout => Some(("TimeoutError", "the code took too long")),
        CellStatus::OutOfMemory => {
            Some(("OutOfMemory", "out of memory: the interpreter was ended and started anew, without its variables"))
        }
        CellStatus::OutputLimit => Some(("OutputLimit", "the code printed more than it may")),
        CellStatus::Died => {
            Some(("UnexpectedEndOfExecution", "the interpreter ended and was started anew, without its variables"))
        }
    }
}

/// Builds a script run. Bash has no live interpreter, so each run is a script.
fn script(
    app: &Arc<App>,
    request: &RequestContext,
    sandbox: &Arc<Sandbox>,
    start: &ProcessDefaults,
    code: String,
    mut env: BTreeMap<String, String>,
) -> Response {
    let recorder = Recorder::new(app, request, sandbox.id(), code.clone());
    env.entry("E2B_SANDBOX_ID".to_owned()).or_insert_with(|| sandbox.id().compact());
    let spec = RunSpec {
        env,
        cwd: Some(start.workdir.clone().unwrap_or_else(|| "/home/user".to_owned())),
        code: code.into_bytes(),
        output_limit: OUTPUT_LIMIT,
        ..RunSpec::new(Program::Code { language: Language::Bash, args: Vec::new() })
    };
    let sandbox = sandbox.clone();
    respond(app.closing(), move |lines| async move {
        let ended = run_script(&sandbox, spec, &lines, recorder).await;
        finish(&sandbox, &lines, ended).await;
    })
}

/// Ends the response. If the sandbox was killed, expired or was paused meanwhile, the response breaks off.
async fn finish(sandbox: &Sandbox, lines: &Lines, ended: Result<(), ApiError>) {
    if let Err(error) = ended {
        let error = lost(sandbox, error).await;
        if is_gone(&error) {
            return lines.break_off().await;
        }
        lines.error("UnexpectedEndOfExecution", &error.message, &error.message).await;
    }
    lines.send(&json!({ "type": "end_of_execution" })).await;
}

async fn run_script(
    sandbox: &Arc<Sandbox>,
    spec: RunSpec,
    lines: &Lines,
    mut recorder: Recorder,
) -> Result<(), ApiError> {
    let mut execution = sandbox.run(spec)?;
    // Every script is the first one of its interpreter.
    lines.number(1).await;
    let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
    let mut killed = false;
    loop {
        let output = tokio::select! {
            output = execution.next() => output?,
            () = lines.gone(), if !killed => {
                killed = true;
                let _ = execution.signal(9).await;
                continue;
            }
        };
        match output {
            Output::Bytes { part, bytes, .. } => {
                recorder.record(&bytes);
                match part {
                    Part::Stderr => lines.output("stderr", stderr.push(&bytes)).await,
                    _ => lines.output("stdout", stdout.push(&bytes)).await,
                }
            }
            Output::Started { .. } | Output::Dropped(_) => {}
            Output::Exited(exit) => {
                lines.output("stdout", stdout.finish()).await;
                lines.output("stderr", stderr.finish()).await;
                if exit.reason != ExitReason::Exited || exit.code != 0 {
                    let value = format!("the script ended with the exit code {}", exit.code);
                    lines.error("ExitCode", &exit.code.to_string(), &value).await;
                }
                return Ok(());
            }
        }
    }
}
