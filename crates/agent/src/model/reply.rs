//! A conversation, independent of the API.

use sandling_tools::{Observation, ToolSpec};
use serde_json::Value;

use crate::usage::Usage;

/// The name of the tool for desktops that some APIs have.
pub const COMPUTER: &str = "computer";
/// About how many bytes of text make a token. Prose has more bytes per token, but tool output is dense.
const BYTES_OF_A_TOKEN: u64 = 3;
/// About how many tokens an image uses.
const TOKENS_OF_AN_IMAGE: u64 = 1500;

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// The arguments, or why they are not valid.
    pub arguments: Result<Value, String>,
}

impl Call {
    /// A call whose arguments are text, which may not be valid JSON.
    pub fn of_text(id: String, name: String, text: &str) -> Self {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let arguments = serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"));
        Self { id, name, arguments }
    }
}

/// The model's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub text: String,
    pub calls: Vec<Call>,
    pub usage: Usage,
    /// The answer in the API's own format, to be sent back unchanged.
    pub raw: Value,
    /// The token limit cut it off.
    pub is_cut: bool,
}

/// One turn of a conversation.
#[derive(Debug, Clone)]
pub enum Turn {
    /// From the user.
    User(String),
    /// The model's answer, in the API's own format.
    Model(Value),
    /// The results of the model's calls.
    Answers(Vec<(Call, Observation)>),
}

/// A request to a model.
#[derive(Debug)]
pub struct Question<'a> {
    pub system: &'a str,
    pub turns: &'a [Turn],
    pub tools: &'a [ToolSpec],
    /// The definition of the API's computer tool, if the model gets it.
    pub computer: Option<&'a Value>,
    /// The most tokens of the answer.
    pub max_tokens: u64,
}

impl Question<'_> {
    /// The estimated tokens of this request and its answer.
    pub(crate) fn estimate(&self, reply: &Reply) -> Usage {
        self.with_answer(reply.raw.to_string().len())
    }

    /// The estimated tokens of this request and an answer of this many bytes.
    pub(crate) fn with_answer(&self, bytes: usize) -> Usage {
        Usage { input: self.size(), output: tokens(bytes) }
    }

    /// The estimated tokens of this request.
    pub(crate) fn size(&self) -> u64 {
        let tools: usize =
            self.tools.iter().map(|tool| tool.description.len() + Value::Object(tool.schema()).to_string().len()).sum();
        let turns: u64 = self
            .turns
            .iter()
            .map(|turn| match turn {
                Turn::User(text) => tokens(text.len()),
                Turn::Model(raw) => tokens(raw.to_string().len()),
                Turn::Answers(answers) => answers
                    .iter()
                    .map(|(_, seen)| tokens(seen.text.len()) + seen.images.len() as u64 * TOKENS_OF_AN_IMAGE)
                    .sum(),
            })
            .sum();
        tokens(self.system.len() + tools) + turns
    }
}

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_OF_A_TOKEN)
}

/// A number that an API may omit, or send with another type.
pub(super) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use sandling_tools::Image;
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_usage_is_estimated() {
        let call = Call { id: "1".into(), name: "run_code".into(), arguments: Ok(json!({})) };
        let image = Image { mime: "image/png".into(), data: "a".repeat(1 << 20) };
        let seen = Observation { images: vec![image], ..Observation::text("x".repeat(3000)) };
        let turns = [Turn::User("y".repeat(300)), Turn::Answers(vec![(call, seen)])];
        let question = Question { system: "", turns: &turns, tools: &[], computer: None, max_tokens: 1 };
        let raw = json!("z".repeat(28));
        let reply = Reply { text: String::new(), calls: Vec::new(), usage: Usage::default(), raw, is_cut: false };
        let estimate = question.estimate(&reply);
        assert_eq!(estimate, Usage { input: 100 + 1000 + TOKENS_OF_AN_IMAGE, output: 10 });
        assert_eq!(Usage { input: 7, output: 0 }.or(estimate), Usage { input: 7, output: 10 });
    }
}
