//! One command with live input over a WebSocket, without any change to its bytes.
//!
//! The client's first message is text: `{"run":{…},"terminal":{"rows","cols"}?,"closed_stdin":true?,"scan":true?}`,
//! where `run` is what `exec` takes. After it, binary messages are the command's stdin, `{"eof":true}` is its end, and
//! `{"resize":{"rows","cols"}}` is for terminals. Signals go through `execs/{exec}/signal`, so that they arrive even
//! while the command does not read its stdin.
//!
//! To the client: `{"start":{"id","pid","existing"}}`; binary messages whose first byte says which stream the rest is
//! of (1 stdout or the terminal, 2 stderr); `{"dropped":N}` where output was lost; at the end `{"exit":{…}}` or
//! `{"error":"…","code":"…","status":N}`, whose status is the one of any other
//! route. A client that goes away hangs up a terminal; any other command runs on.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use sandling_engine::{Cause, Execution, Output, RunError, RunSpec, Sandbox, StreamSender, scan};
use sandling_protocol::{Part, Program, Stdin};
use sandling_wire::{SessionInput, SessionStart};
use serde_json::{Value, json};
use tracing::Instrument;

use crate::closing::Closing;
use crate::convert::exec::run_spec;
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::socket::{self, Upgrade};
use crate::telemetry::socket_span;
use crate::{audit, follow};

const PING_EVERY: Duration = Duration::from_secs(20);
/// The first message must arrive within this time.
const START_WITHIN: Duration = Duration::from_secs(30);
/// The first message holds the code, each byte of which may take six in JSON.
const MAX_START: usize = 8 * 1024 * 1024;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(session))
}

/// Run a command with live input
///
/// A WebSocket. The first message names the command; then stdin, stdout and stderr are binary messages.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/exec/session",
    responses((status = 101, description = "The command's input and output")),
)]
async fn session(call: SandboxCall<Run>, Upgrade(upgrade): Upgrade) -> Result<Response, ApiError> {
    let (session, span) = (Session(call), socket_span());
    let serve = move |socket| session.serve(socket).instrument(span);
    let opened = upgrade.max_message_size(MAX_START).on_upgrade(serve);
    Ok(audit::logs_each_command(opened))
}

struct Session(SandboxCall<Run>);

impl Session {
    async fn serve(self, mut socket: WebSocket) {
        let Ok(Some(start)) = tokio::time::timeout(START_WITHIN, first(&mut socket)).await else { return };
        let (app, context, id) = (&self.0.app, &self.0.context, self.0.sandbox.id().as_str());
        let mut intent = None;
        let started = match (start, audit::begin_command(app, context, id)) {
            (Ok(start), Ok(begun)) => {
                intent = begun;
                self.start(start).await
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        audit::record_command(app, context, id, started.as_ref().err(), intent);
        match started {
            Err(error) => socket::send_and_close(&mut socket, &refusal(&error)).await,
            Ok(running) => running.serve(socket, self.0.app.closing()).await,
        }
    }

    async fn start(&self, start: SessionStart) -> Result<Running, ApiError> {
        let text = start.run.text();
        let recorder = Recorder::new(&self.0.app, &self.0.context, self.0.sandbox.id(), text.clone());
        let terminal = start.terminal.map(IntoEngine::into_engine);
        // Output is streamed and not collected, so it needs no limit.
        let (mut request, advise) = (start.run, start.scan.unwrap_or_default());
        let (output_limit, stdin) = (request.output_limit.take(), request.stdin.take());
        let mut spec = run_spec(request)?;
        self.0.sandbox.info().settings.process.fill(&mut spec);
        let output_limit = output_limit.unwrap_or(spec.output_limit);
        let closed = start.closed_stdin.unwrap_or_default() && stdin.is_none();
        let spec = RunSpec { stdin: if closed { Stdin::Closed } else { Stdin::Open }, terminal, output_limit, ..spec };
        if advise {
            self.advise(&spec)?;
        }
        self.0.app.engine.before(&self.0.sandbox, Cause::Exec, &text).await?;
        let mut execution = self.0.sandbox.run(spec)?;
        let (pid, existing) = follow::first(&mut execution).await?;
        let greeting = json!({ "start": { "id": execution.id(), "pid": pid, "existing": existing } });
        Ok(Running {
            sandbox: self.0.sandbox.clone(),
            hang_up: terminal.is_some(),
            execution,
            greeting,
            stdin,
            recorder,
        })
    }

    /// Writes risky patterns in the code to the sandbox's events.
    fn advise(&self, spec: &RunSpec) -> Result<(), ApiError> {
        let Program::Code { language, .. } = &spec.program else { return Ok(()) };
        let workspace = self.0.sandbox.info().workspace;
        for finding in scan::scan(*language, &String::from_utf8_lossy(&spec.code)) {
            let finding = serde_json::to_value(&finding).unwrap_or_default();
            self.0.app.engine.events().record(self.0.sandbox.id(), &workspace, "advice", finding)?;
        }
        Ok(())
    }
}

/// The first message of the client; nothing if it disconnected.
async fn first(socket: &mut WebSocket) -> Option<Result<SessionStart, ApiError>> {
    loop {
        match socket.recv().await? {
            Ok(Message::Text(text)) => {
                let start = serde_json::from_str(&text);
                return Some(start.map_err(|error| ApiError::bad_request(format!("this cannot be run: {error}"))));
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Binary(_)) => {
                return Some(Err(ApiError::bad_request("the first message says what to run, as JSON")));
            }
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    }
}

fn refusal(error: &ApiError) -> Value {
    json!({ "error": error.message, "code": error.code, "status": error.status.as_u16() })
}

fn closing() -> Value {
    let message = "the server ends; the command goes on without it";
    refusal(&ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "closing", message))
}

struct Running {
    sandbox: Arc<Sandbox>,
    execution: Execution,
    greeting: Value,
    /// Goes before whatever the client sends.
    stdin: Option<String>,
    hang_up: bool,
    recorder: Recorder,
}

impl Running {
    async fn serve(mut self, socket: WebSocket, closing: Closing) {
        let (sink, mut stream) = socket.split();
        let input = Input {
            sandbox: self.sandbox.clone(),
            exec: self.execution.id().to_owned(),
            stdin: self.execution.stdin(),
        };
        // Concurrently: a command that does not read its stdin must not block its output.
        let ended = tokio::select! {
            ended = relay(&mut self.execution, self.greeting, &mut self.recorder, sink, closing) => ended,
            () = input.take_all(self.stdin, &mut stream) => Over::Cut,
        };
        if self.hang_up && matches!(ended, Over::Cut) {
            self.execution.hang_up().await;
        }
        socket::wait_for_close(&mut stream).await;
    }
}

enum Over {
    Ended,
    /// The client disconnected, or the server is shutting down.
    Cut,
}

/// Forwards output until the command ends or the client disconnects.
async fn relay(
    execution: &mut Execution,
    greeting: Value,
    recorder: &mut Recorder,
    mut sink: SplitSink<WebSocket, Message>,
    mut closing: Closing,
) -> Over {
    let mut pings = tokio::time::interval(PING_EVERY);
    let mut next = Some((socket::json(&greeting), None));
    loop {
        if let Some((message, over)) = next.take() {
            if sink.send(message).await.is_err() {
                return Over::Cut;
            }
            if let Some(over) = over {
                // Errors are ignored: the client may have disconnected.
                let _ = sink.close().await;
                return over;
            }
        }
        next = tokio::select! {
            output = execution.next() => message(output, recorder),
            _ = pings.tick() => Some((Message::Ping(Default::default()), None)),
            () = closing.reached() => Some((socket::json(&self::closing()), Some(Over::Cut))),
        };
    }
}

/// One piece of output as a message, and whether it is the last.
fn message(output: Result<Output, RunError>, recorder: &mut Recorder) -> Option<(Message, Option<Over>)> {
    match output {
        Ok(Output::Started { .. }) => None,
        Ok(Output::Bytes { part, bytes, .. }) => {
            recorder.record(&bytes);
            let mut framed = Vec::with_capacity(bytes.len() + 1);
            framed.push(if part == Part::Stderr { STDERR } else { STDOUT });
            framed.extend(bytes);
            Some((Message::Binary(framed.into()), None))
        }
        Ok(Output::Dropped(bytes)) => Some((socket::json(&json!({ "dropped": bytes })), None)),
        Ok(Output::Exited(exit)) => Some((socket::json(&json!({ "exit": (&exit).into_wire() })), Some(Over::Ended))),
        Err(error) => Some((socket::json(&refusal(&error.into())), Some(Over::Ended))),
    }
}

/// The way from the client to the command.
struct Input {
    sandbox: Arc<Sandbox>,
    exec: String,
    stdin: StreamSender,
}

impl Input {
    /// Takes what the client sends until it is gone.
    async fn take_all(&self, before: Option<String>, stream: &mut SplitStream<WebSocket>) {
        // A command that has ended or closed its stdin accepts no more input; its exit message follows.
        if let Some(before) = before {
            let _ = self.stdin.send(before.as_bytes()).await;
        }
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes) => drop(self.stdin.send(&bytes).await),
                Message::Text(text) => self.obey(&text).await,
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return,
            }
        }
    }

    async fn obey(&self, text: &str) {
        // Unknown messages are ignored, because other clients may send them.
        let Ok(input) = serde_json::from_str::<SessionInput>(text) else { return };
        if let Some(size) = input.resize {
            let _ = self.sandbox.resize(&self.exec, size.into_engine()).await;
        }
        if input.eof.unwrap_or_default() {
            let _ = self.stdin.finish();
        }
    }
}
