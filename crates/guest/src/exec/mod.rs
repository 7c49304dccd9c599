//! The parts of a command: its plan, its descriptors, its output, its record, and the table of all records.

mod ends;
pub mod output;
mod plan;
mod record;
mod stdin;
mod table;

pub use ends::{AgentEnds, Started, pipe_ends, terminal_ends};
pub use plan::{Plan, Setting, check_id, describe};
pub use record::{Exec, Pipe, Pipes};
pub use stdin::Stdin;
pub use table::Execs;
