//! The agent loop: the model calls tools, the sandbox runs them, and the model sees the results. The loop ends when the
//! task is done or a budget is used up.
//!
//! It supports three model APIs, at any server that the environment names. The sandbox gets only the requested project.
//! Only a diff that the user has seen is written back. Everything that comes from a model or a sandbox is untrusted.

mod best;
mod budget;
mod computer;
mod ended_by;
mod engine;
mod events;
#[doc(hidden)]
pub mod fuzzing;
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
pub use project::{BY_PRODUCTS, Change, Conflict, Diff, Node, Project, ProjectError, ProjectTree};
pub use run::Agent;
pub use transcript::Transcript;
pub use usage::Usage;
pub use worker::Worker;
