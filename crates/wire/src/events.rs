//! Events of sandboxes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::flag::Flag;

/// The most events of one answer.
const MAX_TAIL: u32 = 10_000;

#[derive(Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Increases with every event.
    pub number: i64,
    pub time: String,
    pub sandbox_id: String,
    /// `sandbox.created`, `sandbox.paused`, `sandbox.ended` and so on. `sandbox.process_cache_fallback` says that its
    /// machine was not resumed from a cached process; the payload has the `reason`: `outdated`, `damaged`, `volumes`,
    /// `failed` or `silent`. `sandbox.disk_full` says that its machine stands still until the host has space again; the
    /// payload says `why`.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = Object)]
    pub payload: Value,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct EventList {
    pub events: Vec<EventView>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// How many of the newest events; if absent, 100, or none when following.
    pub tail: Option<u32>,
    /// Keep sending new events, as server-sent events named `event`.
    pub follow: Option<Flag>,
}

impl EventParams {
    pub fn follows(&self) -> bool {
        self.follow.is_some_and(Flag::is_set)
    }

    pub fn tail(&self) -> u32 {
        self.tail.unwrap_or(if self.follows() { 0 } else { 100 }).min(MAX_TAIL)
    }
}
