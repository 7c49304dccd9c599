//! REPL sessions: live interpreters that keep their variables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exec::LanguageName;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// Python if absent.
    pub language: Option<LanguageName>,
    pub cwd: Option<String>,
    pub env: Option<BTreeMap<String, String>>,
    pub user: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    pub id: String,
    pub sandbox_id: String,
    pub language: &'static str,
    /// How many cells it has run.
    pub cells: u64,
    pub busy: bool,
    /// How often its interpreter was restarted.
    pub restarts: u32,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCell {
    pub code: String,
    #[schema(minimum = 1, maximum = 604800000)]
    pub timeout_ms: Option<u64>,
    #[schema(maximum = 67108864)]
    pub output_limit: Option<u64>,
}

/// Code for the default interpreter of its language.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    pub code: String,
    /// `python` or `node`. Python if absent.
    #[serde(default)]
    #[schema(required = false)]
    pub language: LanguageName,
    /// Absent: no timeout.
    #[schema(minimum = 0.001, maximum = 604800)]
    pub timeout_seconds: Option<f64>,
    #[schema(maximum = 67108864)]
    pub output_limit: Option<u64>,
    /// Environment variables for this run.
    pub env: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct CellResult {
    pub stdout: String,
    pub stderr: String,
    /// 0 if the code succeeded, else 1.
    pub exit: i32,
    pub exit_code: i32,
    /// `ok`, `error`, `interrupted`, `timeout`, `out_of_memory`, `output_limit` or `died`.
    pub status: &'static str,
    pub duration_ms: u64,
    /// The number of the cell in this session, from 1.
    pub execution_count: u64,
    /// The exception as Python prints it.
    pub error: Option<String>,
    pub traceback: Option<TracebackView>,
    /// Rich results: MIME types and data, binary data in base64.
    pub results: Vec<BTreeMap<String, String>>,
    /// Whether the interpreter was restarted, which loses all variables.
    pub restarted: bool,
    pub dropped_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TracebackView {
    pub name: String,
    pub value: String,
    pub text: String,
}
