//! Running processes: their list, input, signals and terminals.

use axum::extract::State;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandling_engine::{Execution, Sandbox};
use sandling_protocol::{ExecInfo, ExecState};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::connect::{Stream, answer, both, refused};
use super::start::{Input, Pty};
use crate::e2b::memory::memory;
use crate::e2b::place::Envd;
use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/process.Process/List", post(list))
        .route("/process.Process/Update", post(update))
        .route("/process.Process/SendInput", post(send_input))
        .route("/process.Process/StreamInput", post(stream_input))
        .route("/process.Process/CloseStdin", post(close_stdin))
        .route("/process.Process/SendSignal", post(send_signal))
}

/// Selects a process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// Finds the selected process. A running process wins over an ended one with the same process id.
pub(super) async fn find(app: &App, sandbox: &Sandbox, selector: &Selector) -> Result<ExecInfo, ApiError> {
    let tag_of = |exec: &ExecInfo| memory(app).process(sandbox.id(), &exec.id).and_then(|started| started.tag.clone());
    let is_meant = |exec: &ExecInfo| match (&selector.pid, &selector.tag) {
        (Some(pid), _) => exec.pid == *pid,
        (None, Some(tag)) => tag_of(exec).as_ref() == Some(tag),
        (None, None) => false,
    };
    let mut meant: Vec<_> = sandbox.list_execs().await?.into_iter().filter(is_meant).collect();
    meant.sort_by_key(|exec| (matches!(exec.state, ExecState::Running), exec.started_unix_ms));
    meant.pop().ok_or_else(|| ApiError::not_found("process"))
}

/// Finds the selected process, if it is running.
async fn running(app: &App, sandbox: &Sandbox, selector: &Selector) -> Result<ExecInfo, ApiError> {
    let found = find(app, sandbox, selector).await?;
    if matches!(found.state, ExecState::Running) { Ok(found) } else { Err(ApiError::not_found("process")) }
}

async fn list(State(app): State<Arc<App>>, envd: Envd) -> Result<Json<Value>, ApiError> {
    let execs = envd.sandbox.list_execs().await?.into_iter();
    let running = execs.filter(|exec| matches!(exec.state, ExecState::Running));
    let views = running.map(|exec| {
        let mut view = match memory(&app).process(envd.sandbox.id(), &exec.id) {
            Some(started) => {
                let config = &started.config;
                let config = json!({
                    "cmd": config.cmd, "args": config.args, "envs": config.envs, "cwd": config.cwd,
                });
                json!({ "config": config, "tag": started.tag })
            }
            // It was started through another dialect, or before this server started.
            None => json!({ "config": { "cmd": exec.command, "args": [], "envs": {} } }),
        };
        view["pid"] = exec.pid.into();
        view
    });
    Ok(Json(json!({ "processes": views.collect::<Vec<_>>() })))
}

#[derive(Debug, Deserialize)]
struct Update {
    process: Selector,
    pty: Option<Pty>,
}

async fn update(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<Update>) -> Result<Json<Value>, ApiError> {
    let exec = running(&app, &envd.sandbox, &body.value.process).await?;
    if let Some(pty) = body.value.pty {
        envd.sandbox.resize(&exec.id, pty.size()).await?;
    }
    Ok(Json(json!({})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProcessInput {
    #[serde(deserialize_with = "bytes")]
    stdin: Option<Vec<u8>>,
    #[serde(deserialize_with = "bytes")]
    pty: Option<Vec<u8>>,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| STANDARD.decode(text).map_err(serde::de::Error::custom)).transpose()
}

#[derive(Debug, Deserialize)]
struct SendInput {
    process: Selector,
    #[serde(default)]
    input: ProcessInput,
}

async fn send_input(
    State(app): State<Arc<App>>,
    envd: Envd,
    body: JsonBody<SendInput>,
) -> Result<Json<Value>, ApiError> {
    let mut receiver = Receiver::open(&app, &envd, &body.value.process).await?;
    receiver.give(body.value.input).await?;
    Ok(Json(json!({})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamInput {
    start: Option<StreamStart>,
    data: Option<StreamData>,
}

#[derive(Debug, Deserialize)]
struct StreamStart {
    process: Selector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamData {
    input: ProcessInput,
}

async fn stream_input(State(app): State<Arc<App>>, envd: Result<Envd, ApiError>, messages: Stream) -> Response {
    match both(envd, Ok(messages)) {
        Ok((envd, messages)) => answer(take_stream(&app, &envd, messages).await.map(|()| json!({}))),
        Err(error) => refused(error),
    }
}

async fn take_stream(app: &App, envd: &Envd, mut messages: Stream) -> Result<(), ApiError> {
    let mut receiver = None;
    while let Some(StreamInput { start, data }) = messages.next().await? {
        if let Some(start) = start {
            receiver = Some(Receiver::open(app, envd, &start.process).await?);
        }
        if let Some(data) = data {
            let first = || ApiError::bad_request("the first message must say which process the input is for");
            receiver.as_mut().ok_or_else(first)?.give(data.input).await?;
        }
    }
    Ok(())
}

async fn close_stdin(
    State(app): State<Arc<App>>,
    envd: Envd,
    body: JsonBody<SendInput>,
) -> Result<Json<Value>, ApiError> {
    let receiver = Receiver::open(&app, &envd, &body.value.process).await?;
    if receiver.input == Some(Input::Terminal) {
        return Err(ApiError::conflict("is_terminal", "a terminal's input is ended by the character 0x04"));
    }
    receiver.execution.stdin().finish().map_err(sandling_engine::UseError::from)?;
    Ok(Json(json!({})))
}

/// A process that accepts input.
struct Receiver {
    execution: Execution,
    /// Unknown if the process was started before this server started.
    input: Option<Input>,
}

impl Receiver {
    async fn open(app: &App, envd: &Envd, selector: &Selector) -> Result<Self, ApiError> {
        let exec = running(app, &envd.sandbox, selector).await?;
        let execution = envd.sandbox.attach(&exec.id, u64::MAX)?;
        let input = memory(app).process(envd.sandbox.id(), &exec.id).map(|started| started.input);
        Ok(Self { execution, input })
    }

    async fn give(&mut self, input: ProcessInput) -> Result<(), ApiError> {
        let refused = |message: &str| Err(ApiError::conflict("no_such_input", message));
        let bytes = match (input.stdin, input.pty, self.input) {
            (_, _, Some(Input::None)) => return refused("the process was started without stdin"),
            (Some(_), _, Some(Input::Terminal)) => return refused("the process has a terminal; send it pty input"),
            (_, Some(_), Some(Input::Pipe)) => return refused("the process has no terminal; send it stdin"),
            (Some(bytes), _, _) | (None, Some(bytes), _) => bytes,
            (None, None, _) => return Ok(()),
        };
        self.execution.stdin().send(&bytes).await.map_err(sandling_engine::UseError::from)?;
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct SendSignal {
    process: Selector,
    #[serde(default)]
    signal: Value,
}

async fn send_signal(
    State(app): State<Arc<App>>,
    envd: Envd,
    body: JsonBody<SendSignal>,
) -> Result<Json<Value>, ApiError> {
    let signal = match &body.value.signal {
        Value::String(name) if name == "SIGNAL_SIGKILL" => 9,
        Value::String(name) if name == "SIGNAL_SIGTERM" => 15,
        Value::Number(number) if matches!(number.as_i64(), Some(9 | 15)) => number.as_i64().unwrap_or(9) as i32,
        _ => return Err(ApiError::bad_request("the signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM")),
    };
    let exec = running(&app, &envd.sandbox, &body.value.process).await?;
    let sent = envd.sandbox.signal(&exec.id, signal).await.map_err(ApiError::from);
    // The process has ended in the meantime.
    sent.map_err(|error| if error.code == "invalid" { ApiError::not_found("process") } else { error })?;
    Ok(Json(json!({})))
}
