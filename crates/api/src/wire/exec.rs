//! Commands.

use std::collections::BTreeMap;

use sandling_engine::{Collected, RunSpec};
use sandling_protocol::{ExecInfo, ExecState, Exit, Language, OnLimit, Program, Stdin};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::sandbox::check_env;
use super::seconds;
use crate::error::ApiError;
use crate::text::lossy;

/// The most output one command may be allowed.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
const MAX_ARGS: usize = 4096;

/// A command: `cmd`, or `args`, or `code` with its `language`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// A line for the shell.
    #[schema(min_length = 1)]
    pub cmd: Option<String>,
    /// A program and its arguments, without a shell. Beside `code`, the script's arguments.
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
    /// Given to the command, then closed.
    pub stdin: Option<String>,
    /// A command of the same id is never started twice.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: Option<String>,
    /// Answer as soon as the command runs.
    pub detached: Option<bool>,
    /// Bytes it may print.
    #[schema(maximum = 67108864)]
    pub output_limit: Option<u64>,
    /// At the limit: `kill` it, or `keep_tail`, i.e. drop the oldest output.
    pub on_limit: Option<OnLimitName>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLimitName {
    Kill,
    KeepTail,
}

impl ExecRequest {
    /// A command line, with nothing else said.
    pub(crate) fn line(cmd: String, timeout_seconds: Option<f64>) -> Self {
        Self { cmd: Some(cmd), timeout_seconds, ..Self::default() }
    }

    pub(crate) fn into_spec(self) -> Result<RunSpec, ApiError> {
        let (program, code) = self.program()?;
        let timeout = seconds::deadline("timeout_seconds", self.timeout_seconds)?;
        let env = self.env.unwrap_or_default();
        check_env(&env)?;
        let id = self.id.map(checked_id).transpose()?;
        for (field, text) in [("cwd", &self.cwd), ("user", &self.user)] {
            no_nul(field, text.as_deref().unwrap_or_default())?;
        }
        Ok(RunSpec {
            code: code.into_bytes(),
            env,
            cwd: self.cwd,
            user: self.user,
            timeout,
            output_limit: output_limit(self.output_limit)?,
            on_limit: match self.on_limit {
                Some(OnLimitName::KeepTail) => OnLimit::KeepTail,
                Some(OnLimitName::Kill) | None => OnLimit::Kill,
            },
            stdin: if self.stdin.is_some() { Stdin::Open } else { Stdin::Closed },
            id,
            ..RunSpec::new(program)
        })
    }

    fn program(&self) -> Result<(Program, String), ApiError> {
        let none = String::new();
        match (&self.cmd, &self.args, &self.code) {
            (Some(cmd), None, None) if !cmd.is_empty() => {
                no_nul("cmd", cmd)?;
                Ok((Program::Shell(cmd.clone()), none))
            }
            (None, Some(args), None) if args.first().is_some_and(|first| !first.is_empty()) => {
                Ok((Program::Argv(checked_args(args)?), none))
            }
            (None, args, Some(code)) => {
                let language = self.language.unwrap_or_default().into();
                let args = checked_args(args.as_deref().unwrap_or_default())?;
                Ok((Program::Code { language, args }, code.clone()))
            }
            _ => Err(ApiError::bad_request(
                "a command needs exactly one of cmd, args and code, and it must not be empty",
            )),
        }
    }

    /// What is to be run, as the audit log keeps it.
    pub(crate) fn text(&self) -> String {
        match (&self.cmd, &self.args, &self.code) {
            (Some(text), ..) | (.., Some(text)) => text.clone(),
            (_, Some(args), _) => args.join(" "),
            _ => String::new(),
        }
    }
}

fn checked_args(args: &[String]) -> Result<Vec<String>, ApiError> {
    args.iter().try_for_each(|arg| no_nul("args", arg))?;
    if args.len() > MAX_ARGS {
        return Err(ApiError::bad_request(format!("args may have at most {MAX_ARGS} items")));
    }
    Ok(args.to_vec())
}

/// A language; other names that people use for it are taken as well.
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

impl From<LanguageName> for Language {
    fn from(name: LanguageName) -> Self {
        match name {
            LanguageName::Python => Self::Python,
            LanguageName::Node => Self::Node,
            LanguageName::Bash => Self::Bash,
        }
    }
}

impl From<Language> for LanguageName {
    fn from(language: Language) -> Self {
        match language {
            Language::Python => Self::Python,
            Language::Node => Self::Node,
            Language::Bash => Self::Bash,
        }
    }
}

pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::Node => "node",
        Language::Bash => "bash",
    }
}

pub(crate) fn output_limit(wanted: Option<u64>) -> Result<u64, ApiError> {
    match wanted.unwrap_or(RunSpec::OUTPUT_LIMIT) {
        limit if limit <= MAX_OUTPUT => Ok(limit),
        _ => Err(ApiError::bad_request(format!("output_limit must be at most {MAX_OUTPUT}"))),
    }
}

pub(crate) fn checked_id(id: String) -> Result<String, ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&id.len()) && id.bytes().all(allowed) {
        return Ok(id);
    }
    Err(ApiError::bad_request("an id has 1 to 64 characters of [A-Za-z0-9_-]"))
}

pub(crate) fn no_nul(field: &str, text: &str) -> Result<(), ApiError> {
    if text.contains('\0') { Err(ApiError::bad_request(format!("{field} must not contain a NUL"))) } else { Ok(()) }
}

/// How a command ended and all that it printed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ExecResult {
    id: String,
    stdout: String,
    stderr: String,
    #[serde(flatten)]
    ended: Ended,
}

/// How a command ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Ended {
    /// As a shell would say it: the exit code, or 128 + the signal's number.
    exit_code: i32,
    signal: Option<i32>,
    /// `exited`, `signalled`, `timeout`, `out_of_memory` or `output_limit`.
    reason: &'static str,
    duration_ms: u64,
    /// Bytes that were printed and are in no answer.
    dropped_bytes: u64,
}

impl From<&Exit> for Ended {
    fn from(exit: &Exit) -> Self {
        let Exit { code, signal, reason, duration_ms, dropped_bytes, .. } = *exit;
        Self { exit_code: code, signal, reason: reason.as_str(), duration_ms, dropped_bytes }
    }
}

impl ExecResult {
    pub(crate) fn new(id: &str, collected: Collected) -> Self {
        Self {
            id: id.to_owned(),
            stdout: lossy(collected.stdout),
            stderr: lossy(collected.stderr),
            ended: Ended::from(&collected.exit),
        }
    }
}

/// A command that runs on after the answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Detached {
    pub(crate) id: String,
    pub(crate) pid: u32,
    /// `running`.
    pub(crate) status: &'static str,
    /// The id had been started before; this request started nothing.
    pub(crate) existing: bool,
}

/// A command of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecView {
    id: String,
    pid: u32,
    /// Cut to 200 characters.
    command: String,
    started_at: String,
    /// Bytes printed so far.
    output_bytes: u64,
    /// `running` or `exited`.
    status: &'static str,
    #[serde(flatten)]
    ended: Option<Ended>,
}

impl From<ExecInfo> for ExecView {
    fn from(info: ExecInfo) -> Self {
        let started =
            i64::try_from(info.started_unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let (status, ended) = match &info.state {
            ExecState::Running => ("running", None),
            ExecState::Exited(exit) => ("exited", Some(Ended::from(exit))),
        };
        Self {
            id: info.id,
            pid: info.pid,
            command: info.command,
            started_at: started.unwrap_or_default().to_string(),
            output_bytes: info.output_bytes,
            status,
            ended,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecList {
    pub(crate) execs: Vec<ExecView>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AttachParams {
    /// Output from this byte on; what is no longer kept is left out.
    #[serde(default)]
    pub(crate) from: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResultParams {
    /// Wait for the end of a command that still runs.
    #[serde(default)]
    pub(crate) wait: bool,
}

/// A signal, by its name (`TERM`, `SIGTERM`) or number.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalRequest {
    #[schema(value_type = String, example = "TERM")]
    signal: SignalName,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalName {
    Number(i32),
    Name(String),
}

impl SignalRequest {
    pub(crate) fn number(&self) -> Result<i32, ApiError> {
        const NAMES: &[(&str, i32)] = &[
            ("HUP", 1),
            ("INT", 2),
            ("QUIT", 3),
            ("ABRT", 6),
            ("KILL", 9),
            ("USR1", 10),
            ("USR2", 12),
            ("PIPE", 13),
            ("ALRM", 14),
            ("TERM", 15),
            ("CONT", 18),
            ("STOP", 19),
            ("TSTP", 20),
            ("WINCH", 28),
        ];
        let number = match &self.signal {
            SignalName::Number(number) => Some(*number),
            SignalName::Name(name) => {
                let short = name.to_ascii_uppercase();
                let short = short.strip_prefix("SIG").unwrap_or(&short);
                NAMES.iter().find(|(known, _)| *known == short).map(|(_, number)| *number).or(short.parse().ok())
            }
        };
        number
            .filter(|number| (1..=64).contains(number))
            .ok_or_else(|| ApiError::bad_request("there is no such signal"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(body: serde_json::Value) -> Result<RunSpec, ApiError> {
        serde_json::from_value::<ExecRequest>(body).unwrap().into_spec()
    }

    #[test]
    fn exactly_one_program_is_taken() {
        assert!(matches!(spec(json!({"cmd": "ls"})).unwrap().program, Program::Shell(_)));
        assert!(matches!(spec(json!({"args": ["ls", ""]})).unwrap().program, Program::Argv(_)));
        assert!(matches!(spec(json!({"code": "1", "language": "js"})).unwrap().program, Program::Code { .. }));
        let scripted = spec(json!({"code": "1", "args": ["-v", ""]})).unwrap().program;
        assert!(matches!(scripted, Program::Code { args, .. } if args == ["-v", ""]));
        for bad in [json!({}), json!({"cmd": ""}), json!({"args": []}), json!({"cmd": "a", "args": ["b"]})] {
            assert!(spec(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_no_process_can_be_given_is_refused() {
        for bad in [json!({"cmd": "a\u{0}"}), json!({"args": ["a\u{0}"]}), json!({"cmd": "a", "cwd": "\u{0}"})] {
            assert!(spec(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        let number = |signal: serde_json::Value| {
            serde_json::from_value::<SignalRequest>(json!({ "signal": signal })).unwrap().number()
        };
        assert_eq!(number(json!("SIGTERM")).unwrap(), 15);
        assert_eq!(number(json!("int")).unwrap(), 2);
        assert_eq!(number(json!(9)).unwrap(), 9);
        assert_eq!(number(json!("9")).unwrap(), 9);
        assert!(number(json!(0)).is_err() && number(json!("NOPE")).is_err() && number(json!(99)).is_err());
    }
}
