//! The loop: a model proposes, a sandbox runs, the model is told what came of it, until the task is done or a budget is
//! used up.
//!
//! Three APIs are spoken, to whatever server the environment names. Nothing of the host is in the sandbox but the
//! project that was asked for, and nothing comes back but a diff that a person has seen. Everything that comes from a
//! model or a sandbox is a stranger's.

mod best;
mod budget;
mod ended_by;
mod engine;
mod events;
mod job;
mod model;
mod project;
mod run;
mod transcript;
mod usage;
mod worker;

pub use best::{Attempt, Race, Winner, race};
pub use budget::{Budget, Prices, Spent};
pub use ended_by::EndedBy;
pub use engine::{Engine, EngineError};
pub use events::{Event, Watch};
pub use job::{Job, Outcome};
pub use model::{Api, Endpoint, EndpointError, Model, ModelError};
pub use project::{Change, Conflict, Diff, Project, ProjectError};
pub use run::Agent;
pub use transcript::Transcript;
pub use usage::Usage;
pub use worker::Worker;
