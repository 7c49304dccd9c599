//! What there is to send, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::Event;
use sandling_engine::store::StoreError;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::address::WebhookAddresses;
use super::rows::{DeliveryState, WebhookDelivery, WebhookRow};
use super::sign::Signature;
use super::webhook::{Webhooks, purpose};

/// Seconds from one attempt to the next. After the last one, a delivery has failed.
const RETRY_AFTER: [i64; 6] = [5, 30, 120, 600, 3600, 6 * 3600];
/// Deliveries that are handed out at once.
const BATCH: u32 = 16;
/// Events that are looked at in one go.
const EVENTS: u32 = 500;
/// How long a delivery belongs to the process that sends it. Longer than an attempt takes.
const LEASE_SECONDS: i64 = 60;
/// How long to wait at most, because another process may add webhooks.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A delivery that should be sent now.
#[derive(Debug)]
pub struct DueDelivery {
    pub url: String,
    pub signature: Signature,
    pub body: String,
    row: WebhookDelivery,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The receiver answered with this status.
    Answered(u16),
    /// There was no answer.
    Failed(String),
}

pub struct Outbox {
    webhooks: Arc<Webhooks>,
    events: tokio::sync::broadcast::Receiver<Event>,
}

impl Outbox {
    pub(super) fn new(webhooks: Arc<Webhooks>) -> Self {
        let events = webhooks.engine.events().subscribe();
        Self { webhooks, events }
    }

    pub fn addresses(&self) -> &WebhookAddresses {
        &self.webhooks.addresses
    }

    /// Waits until there may be something to send.
    pub async fn changed(&mut self) {
        let next = self.webhooks.store.next_due().ok().flatten();
        let until_next = next.map(|due| due.duration_since(Timestamp::now()).unsigned_abs().min(LONGEST_WAIT));
        let is_due = next.is_some_and(|due| due <= Timestamp::now());
        let wait = if is_due { Duration::ZERO } else { until_next.unwrap_or(LONGEST_WAIT) };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.webhooks.changed.notified() => {}
            event = self.events.recv() => {
                // Those that were missed are in the store.
                if matches!(event, Err(RecvError::Closed)) {
                    tokio::time::sleep(wait).await;
                }
            }
        }
        while self.events.try_recv().is_ok() {}
    }

    /// Turns new events into deliveries, and returns those that should be sent now. They belong to this process until
    /// [`Self::finish`].
    pub fn take(&self) -> Result<Vec<DueDelivery>, StoreError> {
        for row in self.webhooks.store.all_webhooks()? {
            self.queue(&row)?;
        }
        let now = Timestamp::now();
        let mut taken = Vec::new();
        for mut row in self.webhooks.store.due_deliveries(now, BATCH)? {
            let until = in_seconds(now, LEASE_SECONDS);
            if !self.webhooks.store.claim_delivery(&row, until)? {
                continue;
            }
            let Some(webhook) = self.webhooks.store.webhook(&row.webhook)? else { continue };
            match self.sign(&webhook, &row, now) {
                Some(signature) => {
                    let (url, body) = (webhook.webhook.url, row.body.clone());
                    taken.push(DueDelivery { url, signature, body, row });
                }
                None => {
                    row.state = DeliveryState::Failed;
                    row.error = Some("the key of the webhook cannot be decrypted; create the webhook again".to_owned());
                    self.webhooks.store.finish_attempt(&row)?;
                }
            }
        }
        Ok(taken)
    }

    /// Writes down what became of an attempt, and when the next one is.
    pub fn finish(&self, delivery: DueDelivery, attempt: Attempt) -> Result<(), StoreError> {
        self.webhooks.store.finish_attempt(&after(delivery.row, attempt, Timestamp::now()))
    }

    fn queue(&self, row: &WebhookRow) -> Result<(), StoreError> {
        let events = self.webhooks.engine.events().after(&row.workspace, None, row.cursor, EVENTS)?;
        let Some(last) = events.last().map(|event| event.number) else { return Ok(()) };
        let wanted = events.iter().map(|event| (format!("sandbox.{}", event.kind), event));
        let wanted = wanted.filter(|(kind, _)| row.webhook.wants(kind));
        let deliveries: Vec<_> =
            wanted.map(|(kind, event)| (kind.clone(), body(&row.workspace, &kind, event))).collect();
        self.webhooks.store.add_deliveries(row, last, &deliveries).map(drop)
    }

    fn sign(&self, webhook: &WebhookRow, row: &WebhookDelivery, now: Timestamp) -> Option<Signature> {
        let key = self.webhooks.engine.networks().unseal(&purpose(&webhook.webhook.id), &webhook.sealed).ok()?;
        // The same for every attempt, so that a receiver recognizes a repeated one.
        let id = format!("msg_{}_{}", webhook.webhook.id, row.number);
        Some(Signature::new(&key, id, now.as_second(), &row.body))
    }
}

fn body(workspace: &str, kind: &str, event: &Event) -> String {
    json!({
        "type": kind,
        "timestamp": event.time.to_string(),
        "data": {
            "number": event.number,
            "workspace": workspace,
            "sandbox_id": event.sandbox,
            "payload": event.detail,
        },
    })
    .to_string()
}

fn after(row: WebhookDelivery, attempt: Attempt, now: Timestamp) -> WebhookDelivery {
    let attempts = row.attempts + 1;
    let (status, error) = match attempt {
        Attempt::Answered(status) if (200..300).contains(&status) => (Some(status), None),
        Attempt::Answered(status) => (Some(status), Some(format!("the receiver answered with status {status}"))),
        Attempt::Failed(why) => (None, Some(why)),
    };
    let retry = RETRY_AFTER.get(row.attempts as usize);
    let state = match (&error, retry) {
        (None, _) => DeliveryState::Delivered,
        (Some(_), Some(_)) => DeliveryState::Pending,
        (Some(_), None) => DeliveryState::Failed,
    };
    let due_at = in_seconds(now, retry.copied().unwrap_or_default());
    WebhookDelivery { attempts, status, error, state, due_at, tried_at: Some(now), ..row }
}

fn in_seconds(now: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_millisecond(now.as_millisecond() + seconds * 1000).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> WebhookDelivery {
        let now = Timestamp::from_second(1000).unwrap();
        WebhookDelivery {
            number: 1,
            webhook: "w".to_owned(),
            kind: "sandbox.ended".to_owned(),
            body: "{}".to_owned(),
            state: DeliveryState::Pending,
            attempts: 0,
            due_at: now,
            created_at: now,
            tried_at: None,
            status: None,
            error: None,
        }
    }

    #[test]
    fn a_delivery_is_retried_with_growing_pauses_and_then_fails() {
        let mut now = Timestamp::from_second(1000).unwrap();
        let mut row = row();
        let mut pauses = Vec::new();
        while row.state == DeliveryState::Pending {
            row = after(row, Attempt::Answered(500), now);
            if row.state == DeliveryState::Pending {
                pauses.push(row.due_at.as_second() - now.as_second());
            }
            now = row.due_at;
        }
        assert_eq!(pauses, RETRY_AFTER);
        assert_eq!((row.state, row.attempts, row.status), (DeliveryState::Failed, 7, Some(500)));
        assert!(row.error.unwrap().contains("500"));
    }

    #[test]
    fn only_a_2xx_is_a_delivery() {
        let now = Timestamp::from_second(1000).unwrap();
        let state = |attempt| after(row(), attempt, now).state;
        assert_eq!(state(Attempt::Answered(204)), DeliveryState::Delivered);
        for status in [199, 301, 404, 500] {
            assert_eq!(state(Attempt::Answered(status)), DeliveryState::Pending, "{status}");
        }
        assert_eq!(state(Attempt::Failed("x".to_owned())), DeliveryState::Pending);
    }
}
