//! Commands.

use sandling_engine::{Collected, RunLimits, RunSpec};
use sandling_protocol::{ExecInfo, ExecState, Exit, Language, OnLimit, Program, Stdin};
use sandling_wire::{Ended, ExecRequest, ExecResult, ExecView, LanguageName, OnLimitName, SignalName, SignalRequest};

use super::sandbox::check_env;
use super::{IntoEngine, IntoWire, seconds};
use crate::error::ApiError;
use crate::text::lossy;

/// The highest output limit of a command.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
const MAX_ARGS: usize = 4096;

pub(crate) fn run_spec(request: ExecRequest) -> Result<RunSpec, ApiError> {
    let (program, code) = program(&request)?;
    let timeout = seconds::deadline("timeout_seconds", request.timeout_seconds)?;
    let env = request.env.unwrap_or_default();
    check_env(&env)?;
    let id = request.id.map(checked_id).transpose()?;
    for (field, text) in [("cwd", &request.cwd), ("user", &request.user)] {
        no_nul(field, text.as_deref().unwrap_or_default())?;
    }
    Ok(RunSpec {
        code: code.into_bytes(),
        env,
        cwd: request.cwd,
        user: request.user,
        timeout,
        output_limit: output_limit(request.output_limit)?,
        limits: run_limits(request.cpu_seconds, request.disk_limit_mb)?,
        on_limit: request.on_limit.map_or(OnLimit::Kill, IntoEngine::into_engine),
        stdin: if request.stdin.is_some() { Stdin::Open } else { Stdin::Closed },
        id,
        ..RunSpec::new(program)
    })
}

fn run_limits(cpu_seconds: Option<f64>, disk_limit_mb: Option<u32>) -> Result<RunLimits, ApiError> {
    if disk_limit_mb == Some(0) {
        return Err(ApiError::bad_request("disk_limit_mb must be at least 1"));
    }
    let disk_bytes = disk_limit_mb.map(|mib| u64::from(mib) << 20);
    Ok(RunLimits { cpu: seconds::deadline("cpu_seconds", cpu_seconds)?, disk_bytes })
}

fn program(request: &ExecRequest) -> Result<(Program, String), ApiError> {
    let none = String::new();
    match (&request.cmd, &request.args, &request.code) {
        (Some(cmd), None, None) if !cmd.is_empty() => {
            no_nul("cmd", cmd)?;
            Ok((Program::Shell(cmd.clone()), none))
        }
        (None, Some(args), None) if args.first().is_some_and(|first| !first.is_empty()) => {
            Ok((Program::Argv(checked_args(args)?), none))
        }
        (None, args, Some(code)) => {
            let language = request.language.unwrap_or_default().into_engine();
            let args = checked_args(args.as_deref().unwrap_or_default())?;
            Ok((Program::Code { language, args }, code.clone()))
        }
        _ => Err(ApiError::bad_request("a command needs exactly one of cmd, args and code, and it must not be empty")),
    }
}

fn checked_args(args: &[String]) -> Result<Vec<String>, ApiError> {
    args.iter().try_for_each(|arg| no_nul("args", arg))?;
    if args.len() > MAX_ARGS {
        return Err(ApiError::bad_request(format!("args may have at most {MAX_ARGS} items")));
    }
    Ok(args.to_vec())
}

into_engine!(enum LanguageName => Language { Python, Node, Bash });
into_wire!(enum Language => LanguageName { Python, Node, Bash });
into_engine!(enum OnLimitName => OnLimit { Kill, KeepTail });

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

impl IntoWire for &Exit {
    type Wire = Ended;

    fn into_wire(self) -> Ended {
        let Exit { code, signal, reason, duration_ms, dropped_bytes, .. } = *self;
        Ended { exit_code: code, signal, reason: reason.as_str(), duration_ms, dropped_bytes }
    }
}

pub(crate) fn exec_result(id: &str, collected: Collected) -> ExecResult {
    ExecResult {
        id: id.to_owned(),
        stdout: lossy(collected.stdout),
        stderr: lossy(collected.stderr),
        ended: (&collected.exit).into_wire(),
    }
}

impl IntoWire for ExecInfo {
    type Wire = ExecView;

    fn into_wire(self) -> ExecView {
        let started =
            i64::try_from(self.started_unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let (status, ended) = match &self.state {
            ExecState::Running => ("running", None),
            ExecState::Exited(exit) => ("exited", Some(exit.into_wire())),
        };
        ExecView {
            id: self.id,
            pid: self.pid,
            command: self.command,
            started_at: started.unwrap_or_default().to_string(),
            output_bytes: self.output_bytes,
            status,
            ended,
        }
    }
}

pub(crate) fn signal_number(request: &SignalRequest) -> Result<i32, ApiError> {
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
    let number = match &request.signal {
        SignalName::Number(number) => Some(*number),
        SignalName::Name(name) => {
            let short = name.to_ascii_uppercase();
            let short = short.strip_prefix("SIG").unwrap_or(&short);
            NAMES.iter().find(|(known, _)| *known == short).map(|(_, number)| *number).or(short.parse().ok())
        }
    };
    number.filter(|number| (1..=64).contains(number)).ok_or_else(|| ApiError::bad_request("there is no such signal"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(body: serde_json::Value) -> Result<RunSpec, ApiError> {
        run_spec(serde_json::from_value(body).unwrap())
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
        let number =
            |signal: serde_json::Value| signal_number(&serde_json::from_value(json!({ "signal": signal })).unwrap());
        assert_eq!(number(json!("SIGTERM")).unwrap(), 15);
        assert_eq!(number(json!("int")).unwrap(), 2);
        assert_eq!(number(json!(9)).unwrap(), 9);
        assert_eq!(number(json!("9")).unwrap(), 9);
        assert!(number(json!(0)).is_err() && number(json!("NOPE")).is_err() && number(json!(99)).is_err());
    }
}
