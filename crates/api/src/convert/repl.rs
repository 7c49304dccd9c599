//! Contexts, which the public clients call REPL sessions.

use std::collections::BTreeMap;

use sandling_protocol::{CellReport, CellStatus, ContextInfo, ContextSpec, Traceback};
use sandling_wire::{CellResult, CreateSession, SessionView, TracebackView};
use serde_json::{Map, Value};

use super::exec::{checked_id, language_name, no_nul};
use super::sandbox::check_env;
use super::{IntoEngine, IntoWire};
use crate::error::ApiError;

pub(crate) fn context_spec(request: CreateSession) -> Result<ContextSpec, ApiError> {
    let env = request.env.unwrap_or_default();
    check_env(&env)?;
    for (field, text) in [("cwd", &request.cwd), ("user", &request.user)] {
        no_nul(field, text.as_deref().unwrap_or_default())?;
    }
    Ok(ContextSpec {
        id: request.id.map_or_else(|| Ok(sandling_service::random::hex::<8>()), checked_id)?,
        language: request.language.unwrap_or_default().into_engine(),
        cwd: request.cwd,
        env,
        user: request.user,
    })
}

pub(crate) fn session_view(sandbox: &str, info: ContextInfo) -> SessionView {
    SessionView {
        id: info.id,
        sandbox_id: sandbox.to_owned(),
        language: language_name(info.language),
        cells: info.cells,
        busy: info.busy,
        restarts: info.restarts,
    }
}

into_wire!(struct Traceback => TracebackView { name, value, text });

pub(crate) fn cell_result(
    stdout: String,
    stderr: String,
    results: Vec<Map<String, Value>>,
    report: CellReport,
) -> CellResult {
    let exit = i32::from(report.status != CellStatus::Ok);
    let error = report.error.as_ref().map(|error| error.text.clone());
    CellResult {
        stdout,
        stderr,
        exit,
        exit_code: exit,
        status: status(report.status),
        duration_ms: report.duration_ms,
        execution_count: report.number,
        error: error.or_else(|| ended_by_itself(report.status).map(str::to_owned)),
        traceback: report.error.map(IntoWire::into_wire),
        results: results.into_iter().map(stringified).collect(),
        restarted: report.restarted,
        dropped_bytes: report.dropped_bytes,
    }
}

fn status(status: CellStatus) -> &'static str {
    match status {
        CellStatus::Ok => "ok",
        CellStatus::Error => "error",
        CellStatus::Interrupted => "interrupted",
        CellStatus::Timeout => "timeout",
        CellStatus::OutOfMemory => "out_of_memory",
        CellStatus::OutputLimit => "output_limit",
        CellStatus::Died => "died",
    }
}

/// An error message for clients that read only `error`, if there is no traceback.
fn ended_by_itself(status: CellStatus) -> Option<&'static str> {
    match status {
        CellStatus::Ok | CellStatus::Error | CellStatus::Timeout => None,
        CellStatus::Interrupted => Some("the cell was interrupted"),
        CellStatus::OutOfMemory => Some("out of memory: the interpreter was ended and started anew"),
        CellStatus::OutputLimit => Some("output limit: the cell printed more than it may"),
        CellStatus::Died => Some("the interpreter ended in the middle of the cell"),
    }
}

/// The public clients expect strings, so JSON is sent as text.
fn stringified(bundle: Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    bundle.into_iter().map(|(mime, value)| (mime, text(value))).collect()
}
