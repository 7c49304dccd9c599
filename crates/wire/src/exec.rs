//! Commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A command: exactly one of `cmd`, `args`, and `code` with its `language`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// A shell command line.
    #[schema(min_length = 1)]
    pub cmd: Option<String>,
    /// A program and its arguments, without a shell; with `code`, the arguments of the script.
    #[schema(max_items = 4096)]
    pub args: Option<Vec<String>>,
    /// A script for an interpreter.
    pub code: Option<String>,
    pub language: Option<LanguageName>,
    #[schema(minimum = 0.001, maximum = 604800)]
    pub timeout_seconds: Option<f64>,
    pub cwd: Option<String>,
    pub env: Option<BTreeMap<String, String>>,
    /// A name or a number. Absent: root.
    pub user: Option<String>,
    /// Written to the command's stdin, which is then closed.
    pub stdin: Option<String>,
    /// An id of your own. A command with the same id never starts twice.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: Option<String>,
    /// Respond as soon as the command runs.
    pub detached: Option<bool>,
    /// How many bytes it may print.
    #[schema(maximum = 67108864)]
    pub output_limit: Option<u64>,
    /// How many seconds of CPU time the sandbox may use while the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.1, maximum = 604800)]
    pub cpu_seconds: Option<f64>,
    /// How much more of its disk the sandbox may use while the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1048576)]
    pub disk_limit_mb: Option<u32>,
    /// At the output limit: `kill` ends the command, `keep_tail` drops the oldest output.
    pub on_limit: Option<OnLimitName>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLimitName {
    Kill,
    KeepTail,
}

impl ExecRequest {
    /// A shell command line without further settings.
    pub fn line(cmd: String, timeout_seconds: Option<f64>) -> Self {
        Self { cmd: Some(cmd), timeout_seconds, ..Self::default() }
    }

    /// What runs, as the audit log records it.
    pub fn text(&self) -> String {
        match (&self.cmd, &self.args, &self.code) {
            (Some(text), ..) | (.., Some(text)) => text.clone(),
            (_, Some(args), _) => args.join(" "),
            _ => String::new(),
        }
    }
}

/// A language. Other common names for it are accepted too.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LanguageName {
    #[default]
    #[serde(alias = "py", alias = "python3")]
    Python,
    #[serde(alias = "nodejs", alias = "javascript", alias = "js")]
    Node,
    #[serde(alias = "shell", alias = "sh")]
    Bash,
}

/// How a command ended, and its output.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ExecResult {
    pub id: String,
    pub stdout: String,
    pub stderr: String,
    #[serde(flatten)]
    pub ended: Ended,
}

/// How a command ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Ended {
    /// As in a shell: the exit code, or 128 plus the number of the signal.
    pub exit_code: i32,
    pub signal: Option<i32>,
    /// `exited`, `signalled`, `timeout`, `out_of_memory`, `output_limit`, `cpu_limit` or `disk_limit`.
    pub reason: &'static str,
    pub duration_ms: u64,
    /// How many bytes of output were dropped.
    pub dropped_bytes: u64,
}

/// A command that continues after the response.
#[derive(Debug, Serialize, ToSchema)]
pub struct Detached {
    pub id: String,
    pub pid: u32,
    /// `running`.
    pub status: &'static str,
    /// A command with this id existed already, and this request started nothing.
    pub existing: bool,
}

/// A command of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecView {
    pub id: String,
    pub pid: u32,
    /// The first 200 characters.
    pub command: String,
    pub started_at: String,
    /// How many bytes it has printed so far.
    pub output_bytes: u64,
    /// `running` or `exited`.
    pub status: &'static str,
    #[serde(flatten)]
    pub ended: Option<Ended>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ExecList {
    pub execs: Vec<ExecView>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AttachParams {
    /// Output from this byte on. Output that the server no longer has is skipped.
    #[serde(default)]
    pub from: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ResultParams {
    /// Wait until the command ends.
    #[serde(default)]
    pub wait: bool,
}

/// A signal, by its name (`TERM`, `SIGTERM`) or number.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    #[schema(value_type = String, example = "TERM")]
    pub signal: SignalName,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum SignalName {
    Number(i32),
    Name(String),
}
