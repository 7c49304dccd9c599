//! A sandbox as tools of a model: what each tool takes, carrying calls out, and answers that a model can use.
//!
//! The exit code is always in the answer, long output is cut in the middle with a note, pictures are pictures, and a
//! call that makes no sense is answered so that the model can mend it. What only a person can mend is an error. The
//! MCP server and the agent loop both stand on this; it knows neither of them.

mod cells;
mod commands;
mod excerpt;
mod files;
mod observation;
mod spec;
mod toolbox;

pub use excerpt::{Excerpt, shorten};
pub use files::picture;
pub use observation::{Image, Observation};
pub use spec::{BadCall, SPECS, ToolSpec, read_arguments};
pub use toolbox::{Doing, Settings, ToolError, Toolbox, is_gone, is_mendable};
