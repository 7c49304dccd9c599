//! Contexts, which the public clients call REPL sessions.

use std::collections::BTreeMap;

use sandling_protocol::{CellReport, CellStatus, ContextInfo, ContextSpec, Traceback};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::exec::{LanguageName, checked_id, language_name, no_nul};
use super::sandbox::check_env;
use crate::error::ApiError;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateSession {
    /// Python if absent.
    language: Option<LanguageName>,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    user: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    id: Option<String>,
}

impl CreateSession {
    pub(crate) fn into_spec(self) -> Result<ContextSpec, ApiError> {
        let env = self.env.unwrap_or_default();
        check_env(&env)?;
        for (field, text) in [("cwd", &self.cwd), ("user", &self.user)] {
            no_nul(field, text.as_deref().unwrap_or_default())?;
        }
        Ok(ContextSpec {
            id: self.id.map_or_else(|| Ok(sandling_service::random::hex::<8>()), checked_id)?,
            language: self.language.unwrap_or_default().into(),
            cwd: self.cwd,
            env,
            user: self.user,
        })
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    id: String,
    sandbox_id: String,
    language: &'static str,
    /// Cells run so far.
    cells: u64,
    busy: bool,
    /// How often its interpreter had to be started anew.
    restarts: u32,
}

impl SessionView {
    pub(crate) fn new(sandbox: &str, info: ContextInfo) -> Self {
        Self {
            id: info.id,
            sandbox_id: sandbox.to_owned(),
            language: language_name(info.language),
            cells: info.cells,
            busy: info.busy,
            restarts: info.restarts,
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCell {
    pub(crate) code: String,
    #[schema(minimum = 1, maximum = 604800000)]
    pub(crate) timeout_ms: Option<u64>,
    #[schema(maximum = 67108864)]
    pub(crate) output_limit: Option<u64>,
}

/// One run in an interpreter of its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunOnce {
    /// Python if absent.
    pub(crate) language: Option<LanguageName>,
    pub(crate) code: String,
    #[schema(minimum = 1, maximum = 604800000)]
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OnceResult {
    pub(crate) language: &'static str,
    #[serde(flatten)]
    pub(crate) result: CellResult,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CellResult {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// 0 if the code ran through, 1 if not.
    exit: i32,
    exit_code: i32,
    /// `ok`, `error`, `interrupted`, `timeout`, `out_of_memory`, `output_limit` or `died`.
    status: &'static str,
    duration_ms: u64,
    /// Counts the cells of this session, from 1.
    execution_count: u64,
    /// What a person would have seen of the exception.
    error: Option<String>,
    traceback: Option<TracebackView>,
    /// Rich results: from MIME type to data, binary data in base64.
    results: Vec<BTreeMap<String, String>>,
    /// The interpreter did not survive; the session has a new one, without variables.
    restarted: bool,
    dropped_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TracebackView {
    name: String,
    value: String,
    text: String,
}

impl From<Traceback> for TracebackView {
    fn from(Traceback { name, value, text }: Traceback) -> Self {
        Self { name, value, text }
    }
}

impl CellResult {
    pub(crate) fn new(stdout: String, stderr: String, results: Vec<Map<String, Value>>, report: CellReport) -> Self {
        let exit = i32::from(report.status != CellStatus::Ok);
        let error = report.error.as_ref().map(|error| error.text.clone());
        Self {
            stdout,
            stderr,
            exit,
            exit_code: exit,
            status: status(report.status),
            duration_ms: report.duration_ms,
            execution_count: report.number,
            error: error.or_else(|| ended_by_itself(report.status).map(str::to_owned)),
            traceback: report.error.map(TracebackView::from),
            results: results.into_iter().map(stringified).collect(),
            restarted: report.restarted,
            dropped_bytes: report.dropped_bytes,
        }
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

/// What to tell a client that looks at `error` only, where there is no traceback.
fn ended_by_itself(status: CellStatus) -> Option<&'static str> {
    match status {
        CellStatus::Ok | CellStatus::Error | CellStatus::Timeout => None,
        CellStatus::Interrupted => Some("the cell was interrupted"),
        CellStatus::OutOfMemory => Some("out of memory: the interpreter was ended and started anew"),
        CellStatus::OutputLimit => Some("output limit: the cell printed more than it may"),
        CellStatus::Died => Some("the interpreter ended in the middle of the cell"),
    }
}

/// The public clients want strings: JSON as its text.
fn stringified(bundle: Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    bundle.into_iter().map(|(mime, value)| (mime, text(value))).collect()
}
