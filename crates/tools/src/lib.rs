//! A sandbox as tools for a model: tool definitions, calls, and results that a model can use.
//!
//! A result always contains the exit code. Long output is cut in the middle, with a note. Images are returned as
//! images. An invalid call returns a text from which the model can correct it. A problem that only a person can solve
//! is an error. The MCP server and the agent loop both use this crate, which knows neither of them.

mod cells;
mod commands;
mod desktop;
mod excerpt;
mod files;
mod missing_module;
mod observation;
mod refusals;
mod spec;
mod toolbox;

pub use desktop::{Action, Button, Position, ScreenSize, Wheel};
pub use excerpt::{Excerpt, shorten};
pub use files::picture;
pub use missing_module::MissingModule;
pub use observation::{Image, Observation};
pub use spec::{BadCall, DesktopTools, ToolSpec, read_arguments, specs, specs_beside_computer};
pub use toolbox::{CallControl, Settings, ToolError, Toolbox, correctable_as_result, is_correctable};
