//! A cell that runs in a context.

use std::time::Instant;

use sandling_protocol::{CellStatus, StreamId};

use crate::exec::output::Output;

pub struct Cell {
    pub number: u64,
    /// `None` when the host no longer reads its output.
    pub stream: Option<StreamId>,
    pub output: Output,
    pub result_bytes: u64,
    pub started: Instant,
    /// Why it was interrupted, if it was.
    pub stopping: Option<CellStatus>,
    /// Its interpreter was sent the line that names it.
    pub named: bool,
    /// A timer repeats its interrupt.
    pub nudged: bool,
    pub paused: bool,
}
