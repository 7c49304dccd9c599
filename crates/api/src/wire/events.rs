//! What happened.

use sandling_engine::Event;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::flag::Flag;

/// The most events of one answer.
const MAX_TAIL: u32 = 10_000;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    /// Rises from event to event.
    pub(crate) number: i64,
    time: String,
    sandbox_id: String,
    /// `sandbox.created`, `sandbox.paused`, `sandbox.ended` and so on.
    #[serde(rename = "type")]
    kind: String,
    #[schema(value_type = Object)]
    payload: Value,
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        Self {
            number: event.number,
            time: event.time.to_string(),
            sandbox_id: event.sandbox,
            kind: format!("sandbox.{}", event.kind),
            payload: event.detail,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventList {
    pub(crate) events: Vec<EventView>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// So many of the newest; 100 if absent, or none when following.
    tail: Option<u32>,
    /// Go on sending, as events named `event`.
    follow: Option<Flag>,
}

impl EventParams {
    pub(crate) fn follows(&self) -> bool {
        self.follow.is_some_and(Flag::is_set)
    }

    pub(crate) fn tail(&self) -> u32 {
        self.tail.unwrap_or(if self.follows() { 0 } else { 100 }).min(MAX_TAIL)
    }
}
