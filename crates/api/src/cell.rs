//! Runs cells in the live interpreters of sandboxes, and collects or streams their output.

use std::sync::Arc;

use sandling_engine::{Cause, Cell, CellOutput, LinkError, Sandbox, UseError};
use sandling_protocol::{CellStatus, FailureKind};
use sandling_wire::{CellResult, RunCell};
use serde_json::json;

use crate::app::App;
use crate::convert::exec::output_limit;
use crate::convert::repl::cell_result;
use crate::convert::seconds;
use crate::error::ApiError;
use crate::recorder::Recorder;
use crate::sse::Events;
use crate::text::{Decoder, lossy};

/// The default timeout of a cell.
const DEFAULT_TIMEOUT_SECONDS: f64 = 30.0;

pub(crate) struct RunningCell {
    cell: Cell,
    timeout_seconds: f64,
}

impl RunningCell {
    pub(crate) fn of(cell: Cell, timeout_seconds: f64) -> Self {
        Self { cell, timeout_seconds }
    }

    pub(crate) async fn start(
        app: &App,
        sandbox: &Arc<Sandbox>,
        session: &str,
        request: &RunCell,
    ) -> Result<Self, ApiError> {
        let timeout_seconds = request.timeout_ms.map_or(DEFAULT_TIMEOUT_SECONDS, |timeout_ms| timeout_ms as f64 / 1e3);
        let timeout = seconds::deadline("timeout_ms / 1000", Some(timeout_seconds))?;
        let limit = output_limit(request.output_limit)?;
        app.engine.before(sandbox, Cause::Cell, &request.code).await?;
        Ok(Self { cell: sandbox.run_cell(session, &request.code, timeout, limit)?, timeout_seconds })
    }

    /// Waits for the end of the cell. With `events`, the client also gets the output as it appears.
    pub(crate) async fn finish(
        mut self,
        mut recorder: Recorder,
        events: Option<&Events>,
    ) -> Result<CellResult, ApiError> {
        let (mut stdout, mut stderr, mut results) = (Stream::new("stdout"), Stream::new("stderr"), Vec::new());
        loop {
            match self.cell.next().await {
                Ok(CellOutput::Stdout(bytes)) => stdout.push(bytes, &mut recorder, events).await,
                Ok(CellOutput::Stderr(bytes)) => stderr.push(bytes, &mut recorder, events).await,
                Ok(CellOutput::Result(result) | CellOutput::Value(result)) => {
                    recorder.record_result(&result);
                    results.push(result);
                }
                Ok(CellOutput::Done(report)) if report.status == CellStatus::Timeout => {
                    recorder.record_error(&report);
                    let error = ApiError::command_timeout(self.timeout_seconds);
                    return Err(error.with("stdout", stdout.text()).with("stderr", stderr.text()));
                }
                Ok(CellOutput::Done(report)) => {
                    recorder.record_error(&report);
                    return Ok(cell_result(stdout.text(), stderr.text(), results, report));
                }
                Err(error) => {
                    return Err(session_missing(error).with("stdout", stdout.text()).with("stderr", stderr.text()));
                }
            }
        }
    }
}

/// One of the two output streams of a cell.
struct Stream {
    name: &'static str,
    bytes: Vec<u8>,
    decoder: Decoder,
}

impl Stream {
    fn new(name: &'static str) -> Self {
        Self { name, bytes: Vec::new(), decoder: Decoder::default() }
    }

    /// Stores output and sends it to the client. If the client has disconnected, the cell continues without it.
    async fn push(&mut self, bytes: Vec<u8>, recorder: &mut Recorder, events: Option<&Events>) {
        recorder.record(&bytes);
        let text = self.decoder.push(&bytes);
        if let Some(events) = events.filter(|_| !text.is_empty()) {
            let _ = events.send(self.name, &json!({ "chunk": text })).await;
        }
        self.bytes.extend(bytes);
    }

    fn text(self) -> String {
        lossy(self.bytes)
    }
}

/// The error of a request to a session. If the guest does not find something, it is the session.
pub(crate) fn session_missing(error: UseError) -> ApiError {
    match error {
        UseError::Link(LinkError::Failed(failure)) if failure.kind == FailureKind::NotFound => {
            ApiError::not_found("session")
        }
        other => other.into(),
    }
}
