//! Terminals over WebSocket.
//!
//! Binary messages are bytes of the terminal, both ways. Text messages are JSON: `{"resize":{"rows","cols"}}` and
//! `{"stdin":"…"}` from the client, `{"exit":N}` or `{"error":"…"}` to it.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use sandling_engine::{Cause, Execution, Output, RunSpec, Sandbox, StreamSender};
use sandling_protocol::{OnLimit, Program, Stdin, TerminalSize};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::closing::Closing;
use crate::convert::exec::{checked_id, no_nul};
use crate::prelude::*;
use crate::recorder::Recorder;
use crate::socket::{self, Upgrade};

const PING_EVERY: Duration = Duration::from_secs(20);
/// How much of a terminal's output is stored for clients that reattach.
const KEPT: u64 = 1024 * 1024;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(open))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TerminalParams {
    /// 24 if absent.
    rows: Option<u16>,
    /// 80 if absent.
    cols: Option<u16>,
    /// A line for the shell; a login shell if absent.
    cmd: Option<String>,
    user: Option<String>,
    /// Keeps the terminal when the socket closes. The next socket with the same id gets the terminal's recent output and
    /// continues it.
    id: Option<String>,
}

/// A terminal in a sandbox
///
/// A WebSocket. Its shell gets a hangup when the socket closes, unless the terminal has an id.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/exec/pty", params(TerminalParams),
    responses((status = 101, description = "The terminal")),
)]
async fn open(
    call: SandboxCall<Run>,
    Params(params): Params<TerminalParams>,
    Upgrade(upgrade): Upgrade,
) -> Result<Response, ApiError> {
    no_nul("cmd", params.cmd.as_deref().unwrap_or_default())?;
    let line = params.cmd.unwrap_or_else(|| "exec \"${SHELL:-/bin/bash}\" -l".to_owned());
    let recorder = Recorder::new(&call.app, &call.context, call.sandbox.id(), line.clone());
    let size = TerminalSize { rows: params.rows.unwrap_or(24).max(1), cols: params.cols.unwrap_or(80).max(1) };
    let id = params.id.map(checked_id).transpose()?;
    // Only a new terminal is a step that a rewind can return to.
    if !exists(&call.sandbox, id.as_deref()).await? {
        call.app.engine.before(&call.sandbox, Cause::Exec, &line).await?;
    }
    let keep = id.is_some();
    let mut spec = RunSpec {
        id,
        env: [("TERM".to_owned(), "xterm-256color".to_owned())].into(),
        user: params.user,
        output_limit: KEPT,
        on_limit: OnLimit::KeepTail,
        stdin: Stdin::Open,
        terminal: Some(size),
        ..RunSpec::new(Program::Shell(line))
    };
    call.sandbox.info().settings.process.fill(&mut spec);
    let execution = call.sandbox.run(spec)?;
    let closing = call.app.closing();
    Ok(upgrade.on_upgrade(move |socket| async move {
        let input = execution.stdin();
        Terminal { sandbox: call.sandbox, execution, input, recorder, keep }.serve(socket, closing).await;
    }))
}

async fn exists(sandbox: &Sandbox, id: Option<&str>) -> Result<bool, ApiError> {
    let Some(id) = id else { return Ok(false) };
    Ok(sandbox.list_execs().await?.iter().any(|exec| exec.id == id))
}

struct Terminal {
    sandbox: Arc<Sandbox>,
    execution: Execution,
    input: StreamSender,
    recorder: Recorder,
    /// Whether the shell continues without the socket.
    keep: bool,
}

/// What a client may send as text.
#[derive(Deserialize)]
struct Control {
    resize: Option<Size>,
    stdin: Option<String>,
}

#[derive(Deserialize)]
struct Size {
    rows: u16,
    cols: u16,
}

impl Terminal {
    async fn serve(mut self, mut socket: WebSocket, mut closing: Closing) {
        let mut pings = tokio::time::interval(PING_EVERY);
        loop {
            let alive = tokio::select! {
                output = self.execution.next() => self.pass(&mut socket, output).await,
                message = socket.recv() => self.take(message).await,
                _ = pings.tick() => socket.send(Message::Ping(Default::default())).await.is_ok(),
                () = closing.reached() => false,
            };
            if !alive {
                if !self.keep {
                    self.execution.hang_up().await;
                }
                return;
            }
        }
    }

    /// Sends output to the client. False when that was the last.
    async fn pass(&mut self, socket: &mut WebSocket, output: Result<Output, sandling_engine::RunError>) -> bool {
        match output {
            Ok(Output::Bytes { bytes, .. }) => {
                self.recorder.record(&bytes);
                socket.send(Message::Binary(bytes.into())).await.is_ok()
            }
            Ok(Output::Started { .. } | Output::Dropped(_)) => true,
            Ok(Output::Exited(exit)) => {
                socket::send_and_close(socket, &serde_json::json!({ "exit": exit.code })).await;
                false
            }
            Err(error) => {
                socket::send_and_close(socket, &serde_json::json!({ "error": ApiError::from(error).message })).await;
                false
            }
        }
    }

    /// Does what the client wants. False when it is gone.
    async fn take(&mut self, message: Option<Result<Message, axum::Error>>) -> bool {
        match message {
            // A shell that has ended accepts no input; its exit message follows.
            Some(Ok(Message::Binary(bytes))) => drop(self.input.send(&bytes).await),
            Some(Ok(Message::Text(text))) => self.obey(&text).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => return false,
        }
        true
    }

    async fn obey(&mut self, text: &str) {
        // Unknown messages are ignored, because other clients may send them.
        let Ok(control) = serde_json::from_str::<Control>(text) else { return };
        if let Some(Size { rows, cols }) = control.resize {
            let size = TerminalSize { rows: rows.max(1), cols: cols.max(1) };
            let _ = self.sandbox.resize(self.execution.id(), size).await;
        }
        if let Some(input) = control.stdin {
            let _ = self.input.send(input.as_bytes()).await;
        }
    }
}
