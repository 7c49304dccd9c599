//! Why a task ended.

use crate::model::ModelError;

/// Why a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedBy {
    /// The worker says that the task is done.
    Answer,
    Steps,
    Tokens,
    Time,
    Money,
    /// The budget is too small for the first request.
    TooLittle(String),
    /// The model repeated the same call.
    Repeats,
    /// The user stopped it.
    Stopped,
    Model(String),
    /// The command line failed.
    Engine(String),
    Sandbox(String),
}

impl EndedBy {
    /// The reason as a sentence.
    pub fn why(&self) -> String {
        match self {
            Self::Answer => "done".to_owned(),
            Self::Steps => "the step budget is used up".to_owned(),
            Self::Tokens => "the token budget is used up".to_owned(),
            Self::Time => "the time limit was reached".to_owned(),
            Self::Money => "the cost budget is used up".to_owned(),
            Self::Repeats => "the model repeated the same call".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::TooLittle(why) | Self::Model(why) | Self::Engine(why) | Self::Sandbox(why) => why.clone(),
        }
    }
}

impl From<ModelError> for EndedBy {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::OutOfTime => Self::Time,
            other => Self::Model(other.to_string()),
        }
    }
}
