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
    /// The model returned nothing, several times.
    Empty,
    /// The user stopped it.
    Stopped,
    Model(String),
    /// The command line failed.
    Engine(String),
    Sandbox(String),
}

impl EndedBy {
    /// The reason as a sentence. The SDK for Python uses the same sentences.
    pub fn why(&self) -> String {
        match self {
            Self::Answer => "done".to_owned(),
            Self::Steps => "the step budget is used up".to_owned(),
            Self::Tokens => "the token budget is used up".to_owned(),
            Self::Time => "the time limit was reached".to_owned(),
            Self::Money => "the cost budget is used up".to_owned(),
            Self::Repeats => "the model repeated the same call".to_owned(),
            Self::Empty => "the model returned empty answers".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_shared_wording() {
        let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/agent/end_reasons.json");
        let shared: serde_json::Value = serde_json::from_slice(&std::fs::read(shared).unwrap()).unwrap();
        let reasons = serde_json::json!({
            "answer": EndedBy::Answer.why(),
            "steps": EndedBy::Steps.why(),
            "tokens": EndedBy::Tokens.why(),
            "time": EndedBy::Time.why(),
            "money": EndedBy::Money.why(),
            "repeats": EndedBy::Repeats.why(),
            "empty": EndedBy::Empty.why(),
        });
        assert_eq!(reasons, shared);
    }
}
