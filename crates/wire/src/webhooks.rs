//! Webhooks. Only the response to a create contains the key.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// `https://` or `http://`, with a host at a public address.
    #[schema(max_length = 2048)]
    pub url: String,
    /// Types of events, such as `sandbox.ended`. `sandbox.*` stands for all that begin like this, and `*` for all.
    #[schema(min_items = 1, max_items = 50)]
    pub events: Vec<String>,
    #[serde(default)]
    #[schema(max_length = 200)]
    pub description: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    pub id: String,
    pub url: String,
    pub events: Vec<String>,
    pub description: String,
    pub created_at: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedWebhookView {
    #[serde(flatten)]
    pub webhook: WebhookView,
    /// The key of the signatures. It is not shown again.
    pub key: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    pub webhooks: Vec<WebhookView>,
}

/// One event for one webhook.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeliveryView {
    pub number: i64,
    /// The event's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `pending`, `delivered` or `failed`.
    pub state: String,
    pub attempts: u32,
    pub created_at: String,
    /// The last attempt.
    pub tried_at: Option<String>,
    /// The next attempt, if the delivery is pending.
    pub next_at: Option<String>,
    /// The status of the last response.
    pub status: Option<u16>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// What is sent.
    pub body: Value,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    pub deliveries: Vec<DeliveryView>,
}
