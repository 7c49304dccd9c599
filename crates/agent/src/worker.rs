//! A model or a command line that works on a task.

use crate::engine::Engine;
use crate::job::{Job, Outcome};
use crate::model::Model;
use crate::run::Agent;

/// A model or a command line that works on a task.
#[derive(Clone, Copy)]
pub enum Worker<'a> {
    /// A model, in our loop.
    Model(&'a Model),
    /// A command line in the sandbox.
    Engine(&'a Engine),
}

impl Worker<'_> {
    pub async fn run(self, job: Job<'_>, task: &str) -> Outcome {
        match self {
            Self::Model(model) => Agent { model, job }.run(task).await,
            Self::Engine(engine) => engine.run(&job, task).await,
        }
    }

    /// Whether forks of the sandbox need its secrets.
    pub(crate) fn needs_secrets(self) -> bool {
        matches!(self, Self::Engine(_))
    }
}
