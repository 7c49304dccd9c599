//! The loop: a model proposes, a sandbox runs, the model is told what came of it, until the task is done or a budget is
//! used up.
//!
//! Three APIs are spoken, to whatever server the environment names. Nothing of the host is in the sandbox but the
//! project that was asked for, and nothing comes back but a diff that a person has seen. Everything that comes from a
//! model or a sandbox is a stranger's.

mod best;
mod budget;
mod engine;
mod events;
mod job;
mod model;
mod project;
mod run;
mod transcript;

pub use best::{Attempt, Race, Winner, race};
pub use budget::{Budget, Prices, Spent};
pub use engine::{Engine, EngineError};
pub use events::{Event, Watch};
pub use job::{Job, Worker};
pub use model::{Api, Endpoint, EndpointError, Model, ModelError, Usage};
pub use project::{Change, Conflict, Diff, Project, ProjectError};
pub use run::{Agent, EndedBy, Outcome};
pub use transcript::Transcript;
