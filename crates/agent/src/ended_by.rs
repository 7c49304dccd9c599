//! Why a task ended.

use crate::model::ModelError;

/// How a loop came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedBy {
    /// Whoever works says that it is done.
    Answer,
    Steps,
    Tokens,
    Time,
    Money,
    /// A budget that not even the first request fits into.
    TooLittle(String),
    /// It did the same thing again and again.
    Repeats,
    /// Somebody wanted it to end.
    Stopped,
    Model(String),
    /// The command line that was to do it failed.
    Engine(String),
    Sandbox(String),
}

impl EndedBy {
    /// In words.
    pub fn why(&self) -> String {
        match self {
            Self::Answer => "done".to_owned(),
            Self::Steps => "the budget of steps is used up".to_owned(),
            Self::Tokens => "the budget of tokens is used up".to_owned(),
            Self::Time => "the time is over".to_owned(),
            Self::Money => "the budget of money is used up".to_owned(),
            Self::Repeats => "the model did the same again and again".to_owned(),
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
