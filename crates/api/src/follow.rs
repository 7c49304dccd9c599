//! Runs commands: feeds their input, and collects or streams their output.

use std::sync::Arc;

use axum::http::StatusCode;
use sandling_engine::{Cause, Collected, Execution, Output, RunError, Sandbox};
use sandling_protocol::{Exit, ExitReason, Part};
use sandling_wire::{Detached, ExecRequest};
use serde::Serialize;

use crate::app::App;
use crate::convert::IntoWire;
use crate::convert::exec::run_spec;
use crate::error::ApiError;
use crate::recorder::Recorder;
use crate::refusals::not_started;
use crate::sse::{Events, Gone};
use crate::text::{Decoder, lossy};

/// Collects a command's output until it ends. If the guest dies, the error includes the output so far.
pub(crate) async fn gather(mut execution: Execution, mut recorder: Recorder) -> Result<Collected, ApiError> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut started = false;
    loop {
        match execution.next().await {
            Ok(Output::Bytes { part, bytes, .. }) => {
                recorder.record(&bytes);
                if part == Part::Stderr { &mut stderr } else { &mut stdout }.extend(bytes);
            }
            Ok(Output::Started { .. }) => started = true,
            Ok(Output::Dropped(_)) => {}
            Ok(Output::Exited(exit)) => return Ok(Collected { stdout, stderr, exit }),
            Err(error) if started => {
                return Err(ApiError::from(error).with("stdout", lossy(stdout)).with("stderr", lossy(stderr)));
            }
            Err(error) => return Err(not_started(error)),
        }
    }
}

/// Starts a command in the background.
pub(crate) async fn detach(
    app: &App,
    sandbox: &Arc<Sandbox>,
    request: ExecRequest,
    recorder: Recorder,
) -> Result<Detached, ApiError> {
    let mut execution = start(app, sandbox, request).await?;
    let id = execution.id().to_owned();
    let (pid, existing) = first(&mut execution).await?;
    // Reading its output keeps the sandbox from becoming idle, and enforces the timeout even if the guest does not.
    tokio::spawn(drain(execution, recorder));
    Ok(Detached { id, pid, status: "running", existing })
}

async fn drain(mut execution: Execution, mut recorder: Recorder) {
    loop {
        match execution.next().await {
            Ok(Output::Bytes { bytes, .. }) => recorder.record(&bytes),
            Ok(Output::Started { .. } | Output::Dropped(_)) => {}
            Ok(Output::Exited(_)) | Err(_) => return,
        }
    }
}

/// Starts a command and feeds its input. If the sandbox has checkpoints enabled, one is created first.
pub(crate) async fn start(app: &App, sandbox: &Arc<Sandbox>, mut request: ExecRequest) -> Result<Execution, ApiError> {
    let input = request.stdin.as_mut().map(std::mem::take);
    let text = request.text();
    let mut spec = run_spec(request)?;
    sandbox.info().settings.process.fill(&mut spec);
    app.engine.before(sandbox, Cause::Exec, &text).await?;
    let execution = sandbox.run(spec)?;
    if let Some(input) = input {
        let sender = execution.stdin();
        // Input and output run concurrently; otherwise a command that prints while it reads would deadlock. A command
        // may end without reading all input.
        tokio::spawn(async move {
            if sender.send(input.as_bytes()).await.is_ok() {
                let _ = sender.finish();
            }
        });
    }
    Ok(execution)
}

/// Waits until a command runs. Returns its process id, and whether it was already running before this request.
pub(crate) async fn first(execution: &mut Execution) -> Result<(u32, bool), ApiError> {
    loop {
        match execution.next().await.map_err(not_started)? {
            Output::Started { pid, existing } => return Ok((pid, existing)),
            Output::Exited(_) => {
                return Err(ApiError::new(StatusCode::BAD_GATEWAY, "guest_confused", "it never started"));
            }
            Output::Bytes { .. } | Output::Dropped(_) => {}
        }
    }
}

/// Streams a command's output as events.
pub(crate) struct Relay {
    events: Events,
    stdout: Decoder,
    stderr: Decoder,
    timeout_seconds: Option<f64>,
    recorder: Recorder,
}

#[derive(Serialize)]
struct Chunk<'a> {
    chunk: &'a str,
    /// The offset of these bytes in the command's whole output.
    offset: u64,
}

impl Relay {
    pub(crate) fn new(events: Events, timeout_seconds: Option<f64>, recorder: Recorder) -> Self {
        Self { events, stdout: Decoder::default(), stderr: Decoder::default(), timeout_seconds, recorder }
    }

    /// Streams everything, and always ends with an `exit` or an `error` event.
    pub(crate) async fn run(mut self, mut execution: Execution) -> Result<(), Gone> {
        let mut position = 0;
        loop {
            match execution.next().await {
                Ok(Output::Bytes { part, offset, bytes }) => {
                    position = offset + bytes.len() as u64;
                    self.recorder.record(&bytes);
                    self.pass(part, offset, position, &bytes).await?;
                }
                Ok(Output::Dropped(bytes)) => {
                    self.events.send("dropped", &serde_json::json!({ "bytes": bytes })).await?
                }
                Ok(Output::Started { pid, existing }) => self.started(execution.id(), pid, existing).await?,
                Ok(Output::Exited(exit)) => return self.exited(position, &exit).await,
                Err(error) => return self.failed(position, error).await,
            }
        }
    }

    pub(crate) async fn started(&self, id: &str, pid: u32, existing: bool) -> Result<(), Gone> {
        self.events.send("start", &serde_json::json!({ "id": id, "pid": pid, "existing": existing })).await
    }

    async fn pass(&mut self, part: Part, offset: u64, position: u64, bytes: &[u8]) -> Result<(), Gone> {
        let (name, decoder) = match part {
            Part::Stderr => ("stderr", &mut self.stderr),
            _ => ("stdout", &mut self.stdout),
        };
        let chunk = decoder.push(bytes);
        if chunk.is_empty() {
            return Ok(());
        }
        self.events.send_with_id(position, name, &Chunk { chunk: &chunk, offset }).await
    }

    /// Sends the remaining bytes of incomplete characters.
    async fn flush(&mut self, offset: u64) -> Result<(), Gone> {
        for (name, rest) in [("stdout", self.stdout.finish()), ("stderr", self.stderr.finish())] {
            if !rest.is_empty() {
                self.events.send(name, &Chunk { chunk: &rest, offset }).await?;
            }
        }
        Ok(())
    }

    async fn exited(mut self, position: u64, exit: &Exit) -> Result<(), Gone> {
        self.flush(position).await?;
        if exit.reason == ExitReason::Timeout {
            let seconds = self.timeout_seconds.unwrap_or(exit.duration_ms as f64 / 1e3);
            self.send_error(&ApiError::command_timeout(seconds)).await?;
        }
        self.events.send("exit", &exit.into_wire()).await
    }

    async fn failed(mut self, position: u64, error: RunError) -> Result<(), Gone> {
        self.flush(position).await?;
        self.send_error(&error.into()).await
    }

    /// Sends an error event with the status that the response would have had.
    async fn send_error(&self, error: &ApiError) -> Result<(), Gone> {
        let ApiError { message, code, status, .. } = error;
        self.events
            .send("error", &serde_json::json!({ "error": message, "code": code, "status": status.as_u16() }))
            .await
    }
}
