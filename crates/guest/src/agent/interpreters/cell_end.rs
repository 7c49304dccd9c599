//! The end of a cell, and the rest of its output.

use sandling_protocol::{CellReport, CellStatus, Response, StreamId, Traceback};

use crate::agent::state::Agent;
use crate::streams::{Kind, Pumped};

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
            super::cell::set_reading(&self.poller, context, true);
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
        let Some(open) = self.streams.get(stream) else {
            return;
        };
        let Kind::Cell { position, .. } = open.kind else {
            return;
        };
        open.kind = Kind::Ended { output: Box::new(cell.output), position, response: Response::Cell(report) };
        self.pump_ended(stream);
    }

    /// Sends the rest of an ended cell's output, then its report.
    pub fn pump_ended(&mut self, stream: StreamId) {
        let Some(open) = self.streams.get(stream) else {
            return;
        };
        // Taken out, because sending from it borrows the table.
        let Kind::Ended { output, position, response } = std::mem::replace(&mut open.kind, Kind::Waiting) else {
            return;
        };
        let (pumped, position) = self.streams.pump(stream, &output.log, position);
        if pumped == Pumped::Everything {
            return self.streams.end(stream, Ok(response));
        }
        if pumped == Pumped::NeedsRoom {
            self.waiting_for_room.insert(stream);
        }
        if let Some(open) = self.streams.get(stream) {
            open.kind = Kind::Ended { output, position, response };
        }
    }
}
