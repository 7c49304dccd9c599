//! Building templates, from Debian packages or from steps.
//!
//! Steps run one after another in a machine on top of an existing template; then the machine is saved. The users,
//! directories and variables that they set ([`ProcessDefaults`](sandling_engine::ProcessDefaults)) are stored with the
//! snapshot. A dialect of the API describes the template ([`BuildSpec`]) and shows the progress ([`Build`]).

mod base;
mod clean_up;
mod copy;
mod dockerfile;
mod machine;
mod packages;
mod record;
mod registry;
mod rows;
mod start;
mod steps;
mod uploads;

pub use base::{BaseError, TemplateSource};
pub use dockerfile::{Dockerfile, parse as parse_dockerfile};
pub use machine::BuildFailure;
#[cfg(test)]
pub(crate) use record::BuildEnd;
pub use registry::{Build, Level, Line, RegisterError, Stage};
pub use start::{BuildSpec, Builds, Explain, SaveAs, StartError};
pub use steps::{Action, Plan, PlanDefaults, PlanError, check_hash};
pub use uploads::UploadError;
