//! Webhooks: which events of a workspace are sent where, and what became of each delivery.
//!
//! The events are in the store anyway, so a webhook only remembers how far it has looked. A delivery is a row before it is
//! sent and until it has arrived, so a restart loses none. One that was sent in the moment of a crash is sent again.
//! Sending is the work of `api`.

mod address;
mod outbox;
mod rows;
mod sign;
mod url;
mod webhook;

pub use address::WebhookAddresses;
pub use outbox::{Attempt, DueDelivery, Outbox};
pub use rows::{DeliveryState, WebhookDelivery};
pub use sign::Signature;
pub use url::{BadUrl, WebhookUrl};
pub use webhook::{CreatedWebhook, NewWebhook, Webhook, WebhookError, Webhooks};
