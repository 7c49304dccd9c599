//! Many commands over one WebSocket.
//!
//! JSON both ways. From the client: `{"id","cmd","timeout_seconds"?}` starts a command, `{"id","cancel":true}` ends
//! it. To the client: `{"id","stream","data"}`, then `{"id","exit"}` or `{"id","error"}`.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use axum::routing::get;
use sandling_engine::{Execution, Output};
use sandling_protocol::{ExitReason, Part};
use sandling_wire::ExecRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::closing::Closing;
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::socket::{self, Upgrade};
use crate::telemetry::socket_span;
use crate::text::Decoder;
use crate::{audit, follow};

const PING_EVERY: Duration = Duration::from_secs(20);
/// Commands under way on one socket.
const MAX_AT_ONCE: usize = 64;
/// The most answers that are queued for a slow client before the commands wait.
const WAITING: usize = 64;
const KILL: i32 = 9;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/v1/sandboxes/{id}/exec/ws", get(open))
}

#[derive(Deserialize)]
struct Frame {
    id: Value,
    cmd: Option<String>,
    timeout_seconds: Option<f64>,
    #[serde(default)]
    cancel: bool,
}

async fn open(call: SandboxCall<Run>, Upgrade(upgrade): Upgrade) -> Result<Response, ApiError> {
    let (closing, span) = (call.app.closing(), socket_span());
    let serve = move |socket| async move {
        let (answers, waiting) = mpsc::channel(WAITING);
        let session = Session { call, answers, running: HashMap::new() };
        session.serve(socket, waiting, closing).instrument(span).await;
    };
    Ok(audit::logs_each_command(upgrade.on_upgrade(serve)))
}

struct Session {
    call: SandboxCall<Run>,
    answers: mpsc::Sender<Value>,
    /// From the client's ids to ours.
    running: HashMap<String, String>,
}

impl Session {
    async fn serve(mut self, mut socket: WebSocket, mut waiting: mpsc::Receiver<Value>, mut closing: Closing) {
        let mut pings = tokio::time::interval(PING_EVERY);
        loop {
            let alive = tokio::select! {
                Some(answer) = waiting.recv() => {
                    self.forget_ended(&answer);
                    socket.send(socket::json(&answer)).await.is_ok()
                }
                message = socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => self.take(&mut socket, &text).await,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => false,
                    Some(Ok(_)) => true,
                },
                _ = pings.tick() => socket.send(Message::Ping(Default::default())).await.is_ok(),
                () = closing.reached() => false,
            };
            if !alive {
                return;
            }
        }
    }

    fn forget_ended(&mut self, answer: &Value) {
        if answer.get("exit").is_some() || answer.get("error").is_some() {
            self.running.remove(&answer["id"].to_string());
        }
    }

    /// Starts or cancels a command. False when the client is gone.
    async fn take(&mut self, socket: &mut WebSocket, text: &str) -> bool {
        let refused = match serde_json::from_str::<Frame>(text) {
            Err(error) => Some(json!({ "id": null, "error": format!("this cannot be read: {error}") })),
            Ok(frame) => {
                let (id, runs) = (frame.id.clone(), !frame.cancel);
                let refused = if runs { self.run(frame).await } else { self.obey(frame).await }.err();
                refused.map(|error| json!({ "id": id, "error": error.message }))
            }
        };
        match refused {
            Some(refused) => socket.send(socket::json(&refused)).await.is_ok(),
            None => true,
        }
    }

    /// Starts a command, with an entry in the audit log.
    async fn run(&mut self, frame: Frame) -> Result<(), ApiError> {
        let (app, context) = (self.call.app.clone(), self.call.context.clone());
        let sandbox = self.call.sandbox.id().clone();
        let (intent, ran) = match audit::begin_command(&app, &context, sandbox.as_str()) {
            Ok(intent) => (intent, self.obey(frame).await),
            Err(error) => (None, Err(error)),
        };
        audit::record_command(&app, &context, sandbox.as_str(), ran.as_ref().err(), intent);
        ran
    }

    async fn obey(&mut self, frame: Frame) -> Result<(), ApiError> {
        let key = frame.id.to_string();
        if frame.cancel {
            let exec = self.running.get(&key).ok_or_else(|| ApiError::not_found("exec"))?;
            return Ok(self.call.sandbox.signal(exec, KILL).await?);
        }
        if self.running.contains_key(&key) || self.running.len() >= MAX_AT_ONCE {
            return Err(ApiError::conflict(
                "busy",
                format!("this id is in use, or {MAX_AT_ONCE} commands are under way"),
            ));
        }
        let cmd = frame.cmd.unwrap_or_default();
        let recorder = Recorder::new(&self.call.app, &self.call.context, self.call.sandbox.id(), cmd.clone());
        let request = ExecRequest::line(cmd, frame.timeout_seconds);
        let execution = follow::start(&self.call.app, &self.call.sandbox, request).await?;
        self.running.insert(key, execution.id().to_owned());
        let command = Command { id: frame.id, timeout_seconds: frame.timeout_seconds, answers: self.answers.clone() };
        tokio::spawn(command.relay(execution, recorder));
        Ok(())
    }
}

struct Command {
    id: Value,
    timeout_seconds: Option<f64>,
    answers: mpsc::Sender<Value>,
}

impl Command {
    /// Forwards output until the command ends or the client disconnects.
    async fn relay(self, mut execution: Execution, mut recorder: Recorder) {
        let (mut stdout, mut stderr) = (Decoder::default(), Decoder::default());
        let end = loop {
            match execution.next().await {
                Ok(Output::Bytes { part, bytes, .. }) => {
                    recorder.record(&bytes);
                    let (stream, decoder) =
                        if part == Part::Stderr { ("stderr", &mut stderr) } else { ("stdout", &mut stdout) };
                    if self.say(stream, decoder.push(&bytes)).await.is_err() {
                        return;
                    }
                }
                Ok(Output::Started { .. } | Output::Dropped(_)) => {}
                Ok(Output::Exited(exit)) if exit.reason == ExitReason::Timeout => {
                    let error = ApiError::command_timeout(self.timeout_seconds.unwrap_or_default());
                    break json!({ "id": self.id, "error": error.message, "exit_code": exit.code });
                }
                Ok(Output::Exited(exit)) => break json!({ "id": self.id, "exit": exit.code }),
                Err(error) => break json!({ "id": self.id, "error": ApiError::from(error).message }),
            }
        };
        // The remaining bytes of incomplete characters are sent before the exit. If the client has disconnected,
        // neither is sent.
        let _ = self.say("stdout", stdout.finish()).await;
        let _ = self.say("stderr", stderr.finish()).await;
        let _ = self.answers.send(end).await;
    }

    async fn say(&self, stream: &str, data: String) -> Result<(), mpsc::error::SendError<Value>> {
        if data.is_empty() {
            return Ok(());
        }
        self.answers.send(json!({ "id": self.id, "stream": stream, "data": data })).await
    }
}
