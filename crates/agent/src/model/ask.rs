//! Sends a request to a model.

use serde_json::Value;
use tokio::time::Instant;

use super::endpoint::{Api, Endpoint};
use super::error::ModelError;
use super::http::{Answer, EventStream, Http};
use super::reply::{Question, Reply};
use super::{anthropic, chat, responses};
use crate::events::{Event, Watch};

pub struct Model {
    endpoint: Endpoint,
    http: Http,
    streams: bool,
}

impl Model {
    /// `streams`: whether to request streamed answers.
    pub fn new(endpoint: Endpoint, streams: bool) -> Result<Self, ModelError> {
        let http = Http::new(&endpoint.url())?;
        endpoint.headers()?;
        Ok(Self { endpoint, http, streams })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The answer. A request has no side effects, so it can be sent again after a failure. `heard` counts the bytes of
    /// the answer as they arrive, even if the answer stays incomplete.
    pub async fn ask(
        &self,
        question: &Question<'_>,
        deadline: Instant,
        heard: &mut usize,
        watch: Watch<'_>,
    ) -> Result<Reply, ModelError> {
        let asked = tokio::time::timeout_at(deadline, self.once(question, heard, watch)).await;
        let reply = asked.map_err(|_| ModelError::OutOfTime)??;
        Ok(Reply { usage: reply.usage.or(question.estimate(&reply)), ..reply })
    }

    async fn once(&self, question: &Question<'_>, heard: &mut usize, watch: Watch<'_>) -> Result<Reply, ModelError> {
        let (url, mut headers) = (self.endpoint.url(), self.endpoint.headers()?);
        if question.computer.is_some() && self.endpoint.api == Api::Anthropic {
            let (name, value) = anthropic::COMPUTER_BETA;
            headers.push((name, value.to_owned()));
        }
        let mut body = match self.endpoint.api {
            Api::Anthropic => anthropic::body(question),
            Api::Chat => chat::body(question, self.endpoint.base_url.contains("api.openai.com")),
            Api::Responses => responses::body(question),
        };
        body["model"] = self.endpoint.model.clone().into();
        if self.streams {
            body["stream"] = true.into();
            if self.endpoint.api == Api::Chat {
                body["stream_options"] = serde_json::json!({ "include_usage": true });
            }
        }
        // A server may send a complete answer although a stream was requested.
        match self.http.post(&url, &headers, &body).await? {
            Answer::Whole(whole) => {
                let reply = self.read(whole)?;
                watch(Event::Said(&reply.text));
                Ok(reply)
            }
            Answer::Events(events) => self.follow(events, heard, watch).await,
        }
    }

    fn read(&self, whole: Value) -> Result<Reply, ModelError> {
        match self.endpoint.api {
            Api::Anthropic => anthropic::read(whole),
            Api::Chat => chat::read(whole),
            Api::Responses => responses::read(whole),
        }
    }

    async fn follow(&self, events: EventStream, heard: &mut usize, watch: Watch<'_>) -> Result<Reply, ModelError> {
        let whole = match self.endpoint.api {
            Api::Anthropic => anthropic::gather(events, heard, watch).await?,
            Api::Chat => chat::gather(events, heard, watch).await?,
            Api::Responses => responses::gather(events, heard, watch).await?,
        };
        self.read(whole)
    }
}

/// The data of a stream event, or the error that it reports. Adds the size of its text to `heard`.
pub(super) fn data(text: &str, heard: &mut usize) -> Result<Value, ModelError> {
    let data: Value = serde_json::from_str(text).map_err(|error| ModelError::Strange(error.to_string()))?;
    if data["type"] == "error" || data["error"].is_object() {
        let message = super::http::error_message(&data).unwrap_or_else(|| data.to_string());
        return Err(ModelError::Broken(message));
    }
    // The Chat API nests its pieces deeper than the other two.
    *heard += bytes_of(&data["delta"]) + bytes_of(&data["choices"][0]["delta"]);
    Ok(data)
}

/// The length of all text in a piece of an answer, except for its type.
fn bytes_of(piece: &Value) -> usize {
    match piece {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| *name != "type").map(|(_, value)| bytes_of(value)).sum()
        }
        _ => 0,
    }
}

/// The stream ended before the answer was complete.
pub(super) fn cut_off() -> ModelError {
    ModelError::Broken("the answer was cut off".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_counted_in_each_api() {
        let mut heard = 0;
        for text in [
            r#"{ "type": "content_block_delta", "delta": { "type": "input_json_delta", "partial_json": "{\"a\"" } }"#,
            r#"{ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "function": { "arguments": "12345" } }] } }] }"#,
            r#"{ "type": "response.function_call_arguments.delta", "delta": "12345" }"#,
            r#"{ "type": "ping" }"#,
        ] {
            data(text, &mut heard).unwrap();
        }
        assert_eq!(heard, 4 + 5 + 5);
    }
}
