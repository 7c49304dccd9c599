//! Starts a process or connects to one, and streams its output until it ends.
//!
//! If the client disconnects, the process keeps running, and a client can connect to it by its process id. A timeout
//! that the user sets ends the process and its whole group. The clients' default timeout ends only the call, so that
//! background processes keep running.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandling_engine::{Cause, Execution, Output, RunSpec};
use sandling_protocol::{Exit, ExitReason, OnLimit, Part, Program, Stdin, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connect::{Framed, Out, both, patience, ping_every, refused, respond};
use super::paths::{home_of, resolve};
use super::process::{Selector, find};
use crate::convert::sandbox::check_env;
use crate::e2b::gone::lost;
use crate::e2b::memory::memory;
use crate::e2b::place::Envd;
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::refusals::not_started;

/// The clients' default timeout of a command.
const UNASKED: Duration = Duration::from_secs(60);
/// The largest chunk of output in one message.
const CHUNK: usize = 32 * 1024;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/process.Process/Start", post(start)).route("/process.Process/Connect", post(connect))
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) cmd: String,
    pub(super) args: Vec<String>,
    pub(super) envs: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pty {
    pub(super) size: Option<Size>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Size {
    cols: u32,
    rows: u32,
}

impl Pty {
    /// The terminal's size, or the default.
    pub(super) fn size(self) -> TerminalSize {
        let fit = |n: u32, usual: u16| if n == 0 { usual } else { u16::try_from(n).unwrap_or(u16::MAX) };
        let Size { cols, rows } = self.size.unwrap_or_default();
        TerminalSize { cols: fit(cols, 80), rows: fit(rows, 24) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StartRequest {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

/// How a process was started, for later requests.
pub(in crate::e2b) struct Started {
    pub(super) config: Config,
    pub(super) tag: Option<String>,
    pub(super) input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    None,
    Pipe,
    Terminal,
}

async fn start(
    State(app): State<Arc<App>>,
    envd: Result<Envd, ApiError>,
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
    request: Result<Framed<StartRequest>, ApiError>,
) -> Response {
    let (envd, Framed(request)) = match both(envd, request) {
        Ok(both) => both,
        Err(error) => return refused(error),
    };
    let (ping, patience) = (ping_every(&headers), patience(&headers));
    respond(app.closing(), move |out| async move {
        let code = format!("{} {}", request.process.cmd, request.process.args.join(" "));
        let recorder = Recorder::new(&app, &context, envd.sandbox.id(), code);
        let execution = begin(&app, &envd, request, patience).await?;
        // If the user sets a timeout, it ends the process, and the process's end event reports it.
        let patience = patience.filter(|patience| *patience == UNASKED);
        follow(&app, &envd, execution, recorder, out, ping, patience).await
    })
}

async fn begin(
    app: &App,
    envd: &Envd,
    request: StartRequest,
    patience: Option<Duration>,
) -> Result<Execution, ApiError> {
    let StartRequest { process, pty, tag, stdin } = request;
    check_env(&process.envs)?;
    let mut argv = vec![process.cmd.clone()];
    argv.extend(process.args.iter().cloned());
    if argv.iter().any(|argument| argument.contains('\0')) || process.cmd.is_empty() {
        return Err(ApiError::bad_request("a process needs a command, without NUL bytes"));
    }
    let argv_text = argv.join(" ");
    let wanted = process.cwd.as_deref().filter(|cwd| !cwd.is_empty()).or(envd.settings.start.workdir.as_deref());
    let cwd = match wanted {
        Some(cwd) => resolve(&envd.sandbox, envd.user(), cwd).await?,
        None => home_of(&envd.sandbox, envd.user()).await?,
    };
    let input = match (pty, stdin.unwrap_or(true)) {
        (Some(_), _) => Input::Terminal,
        (None, true) => Input::Pipe,
        (None, false) => Input::None,
    };
    let mut env = BTreeMap::from([("E2B_SANDBOX_ID".to_owned(), envd.sandbox.id().compact())]);
    env.extend(process.envs.clone());
    let spec = RunSpec {
        env,
        cwd: Some(cwd),
        user: Some(envd.user().to_owned()),
        timeout: patience.filter(|patience| *patience != UNASKED),
        // A slow reader slows the process down; no output is dropped.
        output_limit: u64::MAX,
        on_limit: OnLimit::Kill,
        stdin: if input == Input::Pipe { Stdin::Open } else { Stdin::Closed },
        terminal: pty.map(Pty::size),
        ..RunSpec::new(Program::Argv(argv))
    };
    app.engine.before(&envd.sandbox, Cause::Exec, &argv_text).await?;
    let execution = envd.sandbox.run(spec)?;
    memory(app).started(app, envd.sandbox.id(), execution.id(), Started { config: process, tag, input });
    Ok(execution)
}

#[derive(Debug, Deserialize)]
struct ConnectRequest {
    process: Selector,
}

/// Connects to a running process. Earlier output is not repeated.
async fn connect(
    State(app): State<Arc<App>>,
    envd: Result<Envd, ApiError>,
    headers: HeaderMap,
    request: Result<Framed<ConnectRequest>, ApiError>,
) -> Response {
    let (envd, Framed(request)) = match both(envd, request) {
        Ok(both) => both,
        Err(error) => return refused(error),
    };
    let (ping, patience) = (ping_every(&headers), patience(&headers));
    respond(app.closing(), move |out| async move {
        let exec = find(&app, &envd.sandbox, &request.process).await?;
        let execution = envd.sandbox.attach(&exec.id, u64::MAX)?;
        follow(&app, &envd, execution, Recorder::off(), out, ping, patience).await
    })
}

/// Streams a process's output until it ends or the call times out.
async fn follow(
    app: &App,
    envd: &Envd,
    mut execution: Execution,
    mut recorder: Recorder,
    out: Out,
    ping: Duration,
    patience: Option<Duration>,
) -> Result<(), ApiError> {
    let over = patience.map(|patience| tokio::time::Instant::now() + patience);
    let mut started = false;
    loop {
        let silence = tokio::time::Instant::now() + ping;
        let until = over.map_or(silence, |over| over.min(silence));
        let output = match tokio::time::timeout_at(until, execution.next()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => {
                let error = if started { error.into() } else { not_started(error) };
                return Err(lost(&envd.sandbox, error).await);
            }
            Err(_) if over == Some(until) => return Err(out_of_patience(patience.unwrap_or_default())),
            Err(_) => {
                if started {
                    out.send(&json!({ "event": { "keepalive": {} } })).await;
                }
                continue;
            }
        };
        match output {
            Output::Started { pid, .. } => {
                started = true;
                out.send(&json!({ "event": { "start": { "pid": pid } } })).await;
            }
            Output::Bytes { part, bytes, .. } => {
                recorder.record(&bytes);
                for piece in bytes.chunks(CHUNK) {
                    out.send(&data(part, piece)).await;
                }
            }
            Output::Dropped(_) => {}
            Output::Exited(exit) => {
                memory(app).ended(envd.sandbox.id(), execution.id());
                if exit.reason == ExitReason::Timeout {
                    return Err(deadline());
                }
                out.send(&json!({ "event": { "end": end(&exit) } })).await;
                return Ok(());
            }
        }
    }
}

fn data(part: Part, bytes: &[u8]) -> Value {
    let name = match part {
        Part::Stderr => "stderr",
        Part::Terminal => "pty",
        _ => "stdout",
    };
    json!({ "event": { "data": { name: STANDARD.encode(bytes) } } })
}

fn deadline() -> ApiError {
    timed_out("the command took longer than its timeout and was ended")
}

fn out_of_patience(patience: Duration) -> ApiError {
    let seconds = patience.as_secs_f64();
    timed_out(&format!(
        "the command takes longer than {seconds} s and goes on; connect to it by its pid, or give it a timeout"
    ))
}

fn timed_out(message: &str) -> ApiError {
    let mut error = ApiError::command_timeout(0.0);
    error.message = message.to_owned();
    debug_assert_eq!(error.status, StatusCode::GATEWAY_TIMEOUT);
    error
}

fn end(exit: &Exit) -> Value {
    let (code, exited, status) = match exit.signal {
        Some(signal) => (-1, false, format!("signal: {}", signal_name(signal))),
        None => (exit.code, true, format!("exit status {}", exit.code)),
    };
    let mut end = json!({ "exitCode": code, "exited": exited, "status": status });
    if exit.reason == ExitReason::OutOfMemory {
        end["error"] = format!("{status} (out of memory)").into();
    } else if code != 0 {
        end["error"] = status.into();
    }
    end
}

/// Signal names as Go prints them.
fn signal_name(signal: i32) -> String {
    let known = [
        (1, "hangup"),
        (2, "interrupt"),
        (3, "quit"),
        (6, "aborted"),
        (8, "floating point exception"),
        (9, "killed"),
        (11, "segmentation fault"),
        (13, "broken pipe"),
        (15, "terminated"),
    ];
    known
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32, signal: Option<i32>, reason: ExitReason) -> Exit {
        Exit { code, signal, reason, duration_ms: 0, stdout_bytes: 0, stderr_bytes: 0, dropped_bytes: 0 }
    }

    #[test]
    fn an_end_is_told_as_the_clients_know_it() {
        let fine = end(&exit(0, None, ExitReason::Exited));
        assert_eq!(fine, json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }));
        let failed = end(&exit(3, None, ExitReason::Exited));
        assert_eq!((&failed["exitCode"], &failed["error"]), (&json!(3), &json!("exit status 3")));
        let killed = end(&exit(137, Some(9), ExitReason::Signalled));
        assert_eq!((&killed["exitCode"], &killed["status"]), (&json!(-1), &json!("signal: killed")));
    }

    #[test]
    fn what_the_clients_send_is_understood() {
        let request: StartRequest = serde_json::from_value(json!({
            "process": { "cmd": "/bin/bash", "args": ["-i", "-l"], "envs": { "TERM": "x" } },
            "pty": { "size": { "cols": 100, "rows": 30 } }, "later": 1,
        }))
        .unwrap();
        assert_eq!(request.pty.unwrap().size(), TerminalSize { cols: 100, rows: 30 });
        assert_eq!(Pty::default().size(), TerminalSize { cols: 80, rows: 24 });
        assert!(request.stdin.is_none() && request.process.cwd.is_none());
    }
}
