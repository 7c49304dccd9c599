//! Building templates from steps: those of a Dockerfile, of a client, or those that install packages.
//!
//! Steps run one after another in a machine on top of an existing template, and then its [`warm`] commands. Then the machine
//! is saved. The users, directories and variables that the steps set
//! ([`ProcessDefaults`](sandling_engine::ProcessDefaults)) are stored with the snapshot. A dialect of the API describes the
//! template ([`BuildSpec`]) and shows the progress ([`Build`]).
//!
//! The machine is also saved after each step that changes its disk ([`step_cache`]). A later build goes on after the last
//! step whose key ([`keys`]) it has in common.

mod base;
mod clean_up;
mod context;
mod dockerfile;
mod from_dockerfile;
mod input;
mod keys;
mod machine;
mod names;
mod package_errors;
mod packages;
mod record;
mod registry;
mod requirements;
mod rows;
mod save;
mod stage_run;
mod start;
mod step_cache;
mod steps;
mod uploads;
mod warm;

pub use base::{BaseError, TemplateSource};
pub use dockerfile::{DockerIgnore, DockerfileOptions, parse as parse_dockerfile};
pub use from_dockerfile::{DockerfileBuild, DockerfileError, bases_of_dockerfile};
pub use machine::{BuildFailure, Secrets};
pub use packages::{PackageBuild, PackageError, Packages};
pub use record::Stage;
pub use registry::{Build, Level, Line, RegisterError};
pub use requirements::{RequirementError, split_requirements};
pub use start::{BuildSpec, Builds, CacheUse, Explain, OnFailure, SaveAs, StartError};
pub use steps::{Action, Plan, PlanDefaults, PlanError, check_hash};
pub use uploads::UploadError;
