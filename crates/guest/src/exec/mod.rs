//! Commands: started once, watched by any number of streams, remembered after their end.

mod attach;
mod finish;
mod flow;
pub mod output;
mod plan;
mod record;
mod start;
mod stdin;
mod table;

pub use plan::{Plan, Setting, check_id};
pub use record::{Pipe, Pipes};
pub use start::{Ends, Started};
pub use stdin::Stdin;
pub use table::Execs;
