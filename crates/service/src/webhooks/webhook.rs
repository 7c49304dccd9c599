//! Webhooks of workspaces.

use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::Engine;
use sandling_engine::store::StoreError;
use tokio::sync::Notify;

use super::address::WebhookAddresses;
use super::outbox::Outbox;
use super::rows::{WebhookDelivery, WebhookRow};
use super::sign::show_key;
use super::url::{BadUrl, WebhookUrl};
use crate::random;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

const MOST: usize = 20;
const MOST_TYPES: usize = 50;
const LONGEST_TYPE: usize = 64;
const LONGEST_DESCRIPTION: usize = 200;
const KEY_BYTES: usize = 24;
/// Matches every type.
const ALL: &str = "*";

/// A webhook as it can be shown: without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub id: String,
    pub url: String,
    /// The types of events that are sent.
    pub events: Vec<String>,
    pub description: String,
    pub created_at: Timestamp,
}

impl Webhook {
    /// Whether events of this type are sent: `*` stands for all types, and `sandbox.*` for those that begin like this.
    pub(super) fn wants(&self, kind: &str) -> bool {
        let matches = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => kind.starts_with(start),
            None => kind == wanted,
        };
        self.events.iter().any(matches)
    }
}

#[derive(Debug, Clone)]
pub struct NewWebhook {
    pub url: String,
    pub events: Vec<String>,
    pub description: String,
}

/// A webhook and the key of its signatures, which is shown only once.
#[derive(Debug)]
pub struct CreatedWebhook {
    pub webhook: Webhook,
    pub key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(transparent)]
    Url(#[from] BadUrl),
    #[error("`{0}` is not a type of events: use names such as `sandbox.ended`, `sandbox.*`, or `*` for all")]
    Type(String),
    #[error("a webhook needs 1 to {MOST_TYPES} types of events, for example `sandbox.ended`, or `*` for all")]
    Types,
    #[error("a description has at most {LONGEST_DESCRIPTION} characters, and no control characters")]
    Description,
    #[error("this workspace has {MOST} webhooks, which is the most; remove one first")]
    TooMany,
    #[error("webhook `{0}` does not exist in this workspace")]
    Unknown(String),
    #[error("webhook `{webhook}` has no delivery {number}")]
    UnknownDelivery { webhook: String, number: i64 },
    #[error("the key that encrypts secrets cannot be used")]
    Key(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub struct Webhooks {
    pub(super) engine: Arc<Engine>,
    pub(super) store: Arc<Store>,
    pub(super) addresses: WebhookAddresses,
    /// Wakes the task that sends.
    pub(super) changed: Notify,
}

pub(super) fn purpose(id: &str) -> String {
    format!("webhook {id}")
}

impl Webhooks {
    pub(crate) fn new(engine: Arc<Engine>, store: Arc<Store>, addresses: WebhookAddresses) -> Arc<Self> {
        Arc::new(Self { engine, store, addresses, changed: Notify::new() })
    }

    /// Adds a webhook, which is told about events from now on.
    pub fn create(&self, workspace: &WorkspaceName, new: NewWebhook) -> Result<CreatedWebhook, WebhookError> {
        let url: WebhookUrl = new.url.parse()?;
        check_types(&new.events)?;
        if new.description.chars().count() > LONGEST_DESCRIPTION || new.description.chars().any(char::is_control) {
            return Err(WebhookError::Description);
        }
        if self.store.webhooks(workspace)?.len() >= MOST {
            return Err(WebhookError::TooMany);
        }
        let (id, key) = (random::uuid(), random::bytes::<KEY_BYTES>());
        let sealed = self.engine.networks().seal(&purpose(&id), &key).map_err(WebhookError::Key)?;
        let cursor = self.engine.events().newest(workspace.as_str(), None, 1)?.last().map_or(0, |event| event.number);
        let now = Timestamp::now();
        // As the store keeps it.
        let created_at = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let webhook =
            Webhook { id, url: url.to_string(), events: new.events, description: new.description, created_at };
        let row = WebhookRow { webhook: webhook.clone(), workspace: workspace.to_string(), sealed, cursor };
        self.store.add_webhook(&row)?;
        self.changed.notify_one();
        Ok(CreatedWebhook { webhook, key: show_key(&key) })
    }

    pub fn list(&self, workspace: &WorkspaceName) -> Result<Vec<Webhook>, WebhookError> {
        Ok(self.store.webhooks(workspace)?.into_iter().map(|row| row.webhook).collect())
    }

    /// Removes a webhook and its deliveries. Nothing more is sent to it.
    pub fn remove(&self, workspace: &WorkspaceName, id: &str) -> Result<(), WebhookError> {
        let removed = self.store.remove_webhook(workspace, id)?;
        removed.then_some(()).ok_or_else(|| WebhookError::Unknown(id.to_owned()))
    }

    /// The newest deliveries of a webhook, the newest first.
    pub fn deliveries(
        &self,
        workspace: &WorkspaceName,
        id: &str,
        limit: u32,
    ) -> Result<Vec<WebhookDelivery>, WebhookError> {
        self.own(workspace, id)?;
        Ok(self.store.deliveries(id, limit)?)
    }

    /// Sends a delivery once more, with all its attempts.
    pub fn replay(&self, workspace: &WorkspaceName, id: &str, number: i64) -> Result<(), WebhookError> {
        self.own(workspace, id)?;
        if !self.store.replay_delivery(id, number, Timestamp::now())? {
            return Err(WebhookError::UnknownDelivery { webhook: id.to_owned(), number });
        }
        self.changed.notify_one();
        Ok(())
    }

    /// What there is to send, for the server.
    pub fn outbox(self: &Arc<Self>) -> Outbox {
        Outbox::new(self.clone())
    }

    fn own(&self, workspace: &WorkspaceName, id: &str) -> Result<(), WebhookError> {
        let found = self.store.webhook(id)?.filter(|row| row.workspace == workspace.as_str());
        found.map(drop).ok_or_else(|| WebhookError::Unknown(id.to_owned()))
    }
}

fn check_types(types: &[String]) -> Result<(), WebhookError> {
    if !(1..=MOST_TYPES).contains(&types.len()) {
        return Err(WebhookError::Types);
    }
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'.';
    let is_type = |text: &str| {
        let start = text.strip_suffix('*').unwrap_or(text);
        text == ALL || (start.starts_with("sandbox.") && text.len() <= LONGEST_TYPE && start.bytes().all(is_letter))
    };
    match types.iter().find(|text| !is_type(text)) {
        Some(bad) => Err(WebhookError::Type(bad.chars().take(LONGEST_TYPE).collect())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(events: &[&str]) -> Webhook {
        Webhook {
            id: String::new(),
            url: String::new(),
            events: events.iter().map(|&text| text.to_owned()).collect(),
            description: String::new(),
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_webhook_gets_the_types_that_it_names() {
        assert!(webhook(&["sandbox.ended"]).wants("sandbox.ended"));
        assert!(!webhook(&["sandbox.ended"]).wants("sandbox.ended_again"));
        assert!(webhook(&["sandbox.net*"]).wants("sandbox.network_changed"));
        assert!(webhook(&["x", "*"]).wants("sandbox.created"));
    }

    #[test]
    fn types_have_known_forms() {
        let check = |types: &[&str]| check_types(&types.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert!(check(&["*"]).is_ok() && check(&["sandbox.*", "sandbox.network_changed"]).is_ok());
        assert!(matches!(check(&[]), Err(WebhookError::Types)));
        for bad in ["", "ended", "sandbox.<x>", "sandbox.a*b", "Sandbox.ended"] {
            assert!(matches!(check(&[bad]), Err(WebhookError::Type(_))), "{bad}");
        }
    }
}
