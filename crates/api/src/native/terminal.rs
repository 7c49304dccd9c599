//! Terminals over WebSocket.
//!
//! Binary messages are bytes of the terminal, both ways. Text messages are JSON: `{"resize":{"rows","cols"}}` and
//! `{"stdin":"…"}` from the client, `{"exit":N}` or `{"error":"…"}` to it.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::request::Parts as HttpParts;
use axum::response::Response;
use sandling_engine::{Cause, Execution, Output, RunSpec, Sandbox, StreamSender};
use sandling_protocol::{OnLimit, Program, Stdin, TerminalSize};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Run};
use crate::closing::Closing;
use crate::context::RequestContext;
use crate::convert::exec::no_nul;
use crate::error::ApiError;
use crate::extract::{Params, Parts};
use crate::recorder::Recorder;
use crate::socket::{self, Upgrade};

const PING_EVERY: Duration = Duration::from_secs(20);
const HANGUP: i32 = 1;
/// How much of a terminal's output is stored for clients that reattach.
const KEPT: u64 = 1024 * 1024;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(ssh)).routes(routes!(pty))
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
}

/// A terminal in a sandbox
///
/// A WebSocket. Its shell gets a hangup when the socket closes.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ssh", tag = "terminals", params(("id" = String, Path), TerminalParams),
    responses((status = 101, description = "The terminal")),
)]
async fn ssh(opening: Opening) -> Result<Response, ApiError> {
    opening.open().await
}

/// A terminal in a sandbox, under its other name
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/exec/pty", tag = "terminals", params(("id" = String, Path), TerminalParams),
    responses((status = 101, description = "The terminal")),
)]
async fn pty(opening: Opening) -> Result<Response, ApiError> {
    opening.open().await
}

/// A request for a terminal, whichever of its names it was asked for by.
struct Opening {
    app: Arc<App>,
    context: RequestContext,
    sandbox: Arc<Sandbox>,
    params: TerminalParams,
    upgrade: WebSocketUpgrade,
}

impl FromRequestParts<Arc<App>> for Opening {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut HttpParts, app: &Arc<App>) -> Result<Self, ApiError> {
        let caller = Caller::<Run>::from_request_parts(parts, app).await?;
        let Parts(id) = Parts::<String>::from_request_parts(parts, app).await?;
        let Params(params) = Params::from_request_parts(parts, app).await?;
        let Upgrade(upgrade) = Upgrade::from_request_parts(parts, app).await?;
        let context = Extension::<RequestContext>::from_request_parts(parts, app).await;
        let Extension(context) = context.map_err(|missing| ApiError::internal(&missing))?;
        let sandbox = caller.sandbox(app, &id).await?;
        Ok(Self { app: app.clone(), context, sandbox, params, upgrade })
    }
}

impl Opening {
    async fn open(self) -> Result<Response, ApiError> {
        let Self { app, context, sandbox, params, upgrade } = self;
        no_nul("cmd", params.cmd.as_deref().unwrap_or_default())?;
        let line = params.cmd.unwrap_or_else(|| "exec \"${SHELL:-/bin/bash}\" -l".to_owned());
        let recorder = Recorder::new(&app, &context, sandbox.id(), line.clone());
        let size = TerminalSize { rows: params.rows.unwrap_or(24).max(1), cols: params.cols.unwrap_or(80).max(1) };
        app.engine.before(&sandbox, Cause::Exec, &line).await?;
        let mut spec = RunSpec {
            env: [("TERM".to_owned(), "xterm-256color".to_owned())].into(),
            user: params.user,
            output_limit: KEPT,
            on_limit: OnLimit::KeepTail,
            stdin: Stdin::Open,
            terminal: Some(size),
            ..RunSpec::new(Program::Shell(line))
        };
        sandbox.info().settings.process.fill(&mut spec);
        let execution = sandbox.run(spec)?;
        let closing = app.closing();
        Ok(upgrade.on_upgrade(move |socket| async move {
            let input = execution.stdin();
            Terminal { sandbox, execution, input, recorder }.serve(socket, closing).await;
        }))
    }
}

struct Terminal {
    sandbox: Arc<Sandbox>,
    execution: Execution,
    input: StreamSender,
    recorder: Recorder,
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
                // This is harmless for a shell that has ended.
                let _ = self.execution.signal(HANGUP).await;
                return;
            }
        }
    }

    /// Sends output to the client. False when that was the last.
    async fn pass(&mut self, socket: &mut WebSocket, output: Result<Output, sandling_engine::RunError>) -> bool {
        match output {
            Ok(Output::Bytes { bytes, .. }) => {
                self.recorder.heard(&bytes);
                socket.send(Message::Binary(bytes.into())).await.is_ok()
            }
            Ok(Output::Started { .. } | Output::Dropped(_)) => true,
            Ok(Output::Exited(exit)) => {
                socket::last_words(socket, &serde_json::json!({ "exit": exit.code })).await;
                false
            }
            Err(error) => {
                socket::last_words(socket, &serde_json::json!({ "error": ApiError::from(error).message })).await;
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
