//! The parts of a command: its plan, its descriptors, its output, its record, and the table of all records.

pub mod output;
mod pipes;
mod plan;
mod record;
mod stdin;
mod stdio;
mod table;

pub use pipes::{BOTH, Pipe, Pipes};
pub use plan::{Plan, Setting, check_id, describe, text_of};
pub use record::Exec;
pub use stdin::Stdin;
pub use stdio::{AgentStdio, Started, open_pipes, open_terminal};
pub use table::Execs;
