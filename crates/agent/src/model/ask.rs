//! Asks a model, again and again if it is busy, until there is an answer or no time.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::endpoint::{Api, Endpoint};
use super::error::ModelError;
use super::http::{Answer, EventStream, Http};
use super::reply::{Question, Reply};
use super::{anthropic, chat, responses};
use crate::events::{Event, Watch};

const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub struct Model {
    endpoint: Endpoint,
    http: Http,
    streams: bool,
}

impl Model {
    /// `streams`: whether answers are asked for as they come into being.
    pub fn new(endpoint: Endpoint, streams: bool) -> Result<Self, ModelError> {
        let http = Http::new(&endpoint.url())?;
        endpoint.headers()?;
        Ok(Self { endpoint, http, streams })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The answer. A request has no effects, so one that failed is simply sent again.
    pub async fn ask(&self, question: &Question<'_>, deadline: Instant, watch: Watch<'_>) -> Result<Reply, ModelError> {
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            let asked = tokio::time::timeout_at(deadline, self.once(question, watch)).await;
            let error = match asked.map_err(|_| ModelError::OutOfTime)? {
                Ok(reply) => return Ok(Reply { usage: reply.usage.or(question.estimate(&reply)), ..reply }),
                Err(error) if error.is_passing() => error,
                Err(error) => return Err(error),
            };
            tries += 1;
            let after = error.retry_after().unwrap_or(wait);
            if tries == TRIES {
                return Err(ModelError::GaveUp { tries, last: error.to_string() });
            }
            if Instant::now() + after >= deadline {
                return Err(ModelError::OutOfTime);
            }
            watch(Event::Retry { why: &error.to_string(), after });
            tokio::time::sleep(after).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn once(&self, question: &Question<'_>, watch: Watch<'_>) -> Result<Reply, ModelError> {
        let (url, headers) = (self.endpoint.url(), self.endpoint.headers()?);
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
        // A server may answer as a whole although it was asked to stream.
        match self.http.post(&url, &headers, &body).await? {
            Answer::Whole(whole) => {
                let reply = self.read(whole)?;
                watch(Event::Said(&reply.text));
                Ok(reply)
            }
            Answer::Events(events) => self.follow(events, watch).await,
        }
    }

    fn read(&self, whole: Value) -> Result<Reply, ModelError> {
        match self.endpoint.api {
            Api::Anthropic => anthropic::read(whole),
            Api::Chat => chat::read(whole),
            Api::Responses => responses::read(whole),
        }
    }

    async fn follow(&self, events: EventStream, watch: Watch<'_>) -> Result<Reply, ModelError> {
        let whole = match self.endpoint.api {
            Api::Anthropic => anthropic::gather(events, watch).await?,
            Api::Chat => chat::gather(events, watch).await?,
            Api::Responses => responses::gather(events, watch).await?,
        };
        self.read(whole)
    }
}

/// The data of an event, which may say that something broke.
pub(super) fn data(text: &str) -> Result<Value, ModelError> {
    let data: Value = serde_json::from_str(text).map_err(|error| ModelError::Strange(error.to_string()))?;
    if data["type"] == "error" || data["error"].is_object() {
        let message = super::http::error_message(&data).unwrap_or_else(|| data.to_string());
        return Err(ModelError::Broken(message));
    }
    Ok(data)
}

/// A stream that ended in the middle.
pub(super) fn cut_off() -> ModelError {
    ModelError::Broken("the answer was cut off".to_owned())
}
