//! A conversation, as the loop thinks of it; each API writes it in its own way.

use sandling_tools::{Observation, ToolSpec};
use serde_json::Value;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
}

/// A tool that the model wants to be called.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// Or why they are none.
    pub arguments: Result<Value, String>,
}

impl Call {
    /// Arguments that come as text, which need not be JSON.
    pub fn of_text(id: String, name: String, text: &str) -> Self {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let arguments = serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"));
        Self { id, name, arguments }
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
    pub usage: Usage,
    /// What it said, in the API's own form, to be sent back as it is.
    pub raw: Value,
    /// It was cut off by the number of tokens that it may have.
    pub is_cut: bool,
}

/// One turn of a conversation.
#[derive(Debug, Clone)]
pub enum Turn {
    /// From whoever has the task.
    User(String),
    /// The raw form of a reply.
    Model(Value),
    /// What its calls gave.
    Answers(Vec<(Call, Observation)>),
}

/// A request to a model.
#[derive(Debug)]
pub struct Question<'a> {
    pub system: &'a str,
    pub turns: &'a [Turn],
    pub tools: &'a [ToolSpec],
    /// The longest that the answer may be.
    pub max_tokens: u64,
}

/// A number that an API may leave out, or send as something else.
pub(super) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
