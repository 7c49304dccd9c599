//! The end of a cell, and the rest of its output.

use sandling_protocol::{CellReport, CellStatus, Response, StreamId, Traceback};

use crate::agent::state::Agent;
use crate::streams::Kind;

impl Agent {
    /// Ends the running cell, if there is one. The context is free at once; the stream ends when everything is sent.
    pub fn end_cell(&mut self, key: u64, status: CellStatus, error: Option<Traceback>, restarted: bool) {
        self.pump_cell(key);
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        let Some(cell) = context.cell.take() else {
            return;
        };
        if cell.paused {
            let _ = context.watch(&self.poller);
        }
        let Some(stream) = cell.stream else {
            return;
        };
        let report = CellReport {
            status: cell.stopping.unwrap_or(status),
            number: cell.number,
            error,
            duration_ms: cell.started.elapsed().as_millis() as u64,
            dropped_bytes: cell.output.dropped_bytes,
            restarted,
        };
        let response = Response::Cell(report);
        self.streams.set_kind(stream, Kind::Ended { output: Box::new(cell.output), response });
        self.pump_ended(stream);
    }

    /// Sends the rest of an ended cell's output, then its report.
    pub fn pump_ended(&mut self, stream: StreamId) {
        // Taken out, because sending from it borrows the table.
        let Some(open) = self.streams.kind(stream) else { return };
        let Kind::Ended { output, response } = std::mem::replace(open, Kind::Waiting) else { return };
        if self.streams.pump(stream, &output.log).is_none_or(|position| position >= output.log.end()) {
            return self.streams.end(stream, Ok(response));
        }
        self.streams.set_kind(stream, Kind::Ended { output, response });
    }
}
