//! Contexts: live interpreters of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::{
    CellReport, CellSpec, ContextInfo, ContextSpec, Failure, FailureKind, Outcome, Part, Request, Response,
};
use serde_json::{Map, Value};

use super::activity::InUse;
use super::error::UseError;
use super::handle::Sandbox;
use crate::link::{Incoming, LinkError, Stream};

/// The largest rich result that is put together from its pieces.
const MAX_RESULT: usize = 16 * 1024 * 1024;

/// A cell that is running.
pub struct Cell {
    stream: Stream,
    partial: Vec<u8>,
    /// What the partial line is of.
    partial_of: Part,
    _in_use: InUse,
}

/// What a cell brings, in order.
#[derive(Debug)]
pub enum CellOutput {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// One rich result that the cell displayed: MIME type to its data, binary data in base64.
    Result(Map<String, Value>),
    /// The value of its last expression, in the same form.
    Value(Map<String, Value>),
    /// The last one.
    Done(CellReport),
}

impl Sandbox {
    pub async fn create_context(&self, spec: ContextSpec) -> Result<ContextInfo, UseError> {
        context(self.ask(Request::CreateContext(spec)).await?)
    }

    /// Makes a context, unless it is there, and runs a cell in it. The guest is asked for both at once. Returns the cell
    /// and its number.
    pub async fn run_first_cell(
        self: &Arc<Self>,
        made: ContextSpec,
        cell: CellSpec,
        code: &str,
    ) -> Result<(Cell, u64), UseError> {
        let (live, _in_use) = self.live()?;
        let making = live.link.open(Request::CreateContext(made), &[])?;
        let cell = self.run_cell_of(cell, code)?;
        let made = context(making.drain(|_, _| {}).await?)?;
        // A new context answers when it is ready, and the cell may have begun by then.
        Ok((cell, if made.busy { made.cells } else { made.cells + 1 }))
    }

    pub async fn restart_context(&self, id: &str) -> Result<ContextInfo, UseError> {
        context(self.ask(Request::RestartContext { context: id.to_owned() }).await?)
    }

    pub async fn interrupt_context(&self, id: &str) -> Result<(), UseError> {
        self.ask(Request::Interrupt { context: id.to_owned() }).await.map(drop)
    }

    pub async fn close_context(&self, id: &str) -> Result<(), UseError> {
        self.ask(Request::CloseContext { context: id.to_owned() }).await.map(drop)
    }

    pub async fn list_contexts(&self) -> Result<Vec<ContextInfo>, UseError> {
        match self.ask(Request::ListContexts).await? {
            Response::Contexts { contexts } => Ok(contexts),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Runs code in a context whose variables are still there from the last time.
    pub fn run_cell(
        self: &Arc<Self>,
        context: &str,
        code: &str,
        timeout: Option<Duration>,
        output_limit: u64,
    ) -> Result<Cell, UseError> {
        let timeout_ms = timeout.map(|t| t.as_millis() as u64);
        let (context, env) = (context.to_owned(), Default::default());
        self.run_cell_of(CellSpec { context, timeout_ms, output_limit, env, typescript: false }, code)
    }

    pub fn run_cell_of(self: &Arc<Self>, spec: CellSpec, code: &str) -> Result<Cell, UseError> {
        let (live, in_use) = self.live()?;
        let stream = live.link.open(Request::RunCell(spec), code.as_bytes())?;
        Ok(Cell { stream, partial: Vec::new(), partial_of: Part::Results, _in_use: in_use })
    }
}

impl Cell {
    pub async fn next(&mut self) -> Result<CellOutput, UseError> {
        loop {
            if let Some(result) = self.whole_result()? {
                return Ok(match self.partial_of {
                    Part::Value => CellOutput::Value(result),
                    _ => CellOutput::Result(result),
                });
            }
            match self.stream.next().await? {
                Incoming::Data { part: Part::Stdout, bytes, .. } => return Ok(CellOutput::Stdout(bytes)),
                Incoming::Data { part: Part::Stderr, bytes, .. } => return Ok(CellOutput::Stderr(bytes)),
                Incoming::Data { part: part @ (Part::Results | Part::Value), bytes, .. } => {
                    self.partial_of = part;
                    self.partial.extend(bytes);
                }
                Incoming::Data { .. } | Incoming::Event(_) => {}
                Incoming::End(Outcome::Ok(Response::Cell(report))) => return Ok(CellOutput::Done(report)),
                Incoming::End(Outcome::Ok(_)) => return Err(LinkError::Unexpected.into()),
                Incoming::End(Outcome::Failed(failure)) => return Err(LinkError::Failed(failure).into()),
            }
        }
    }

    /// Takes a finished line of results, if there is one.
    fn whole_result(&mut self) -> Result<Option<Map<String, Value>>, UseError> {
        let Some(end) = self.partial.iter().position(|&b| b == b'\n') else {
            if self.partial.len() > MAX_RESULT {
                let message = format!("a result is larger than {MAX_RESULT} bytes");
                return Err(LinkError::Failed(Failure { kind: FailureKind::TooLarge, message }).into());
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.partial.drain(..=end).collect();
        serde_json::from_slice(&line).map(Some).map_err(|_| LinkError::Unexpected.into())
    }
}

fn context(response: Response) -> Result<ContextInfo, UseError> {
    match response {
        Response::Context(info) => Ok(info),
        _ => Err(LinkError::Unexpected.into()),
    }
}
