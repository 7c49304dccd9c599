//! Rows of webhooks and of their deliveries.

use jiff::Timestamp;
use rusqlite::{Row, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, time};

use super::webhook::Webhook;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// Finished deliveries that are kept of one webhook.
const KEPT: i64 = 1000;
/// Pending deliveries of one webhook. The oldest fail when there are more.
const MOST_PENDING: i64 = 10_000;
/// Deliveries of one webhook that are sent at the same time.
const OF_ONE_WEBHOOK: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "delivered" => Self::Delivered,
            "failed" => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// One event for one webhook.
#[derive(Debug, Clone)]
pub struct WebhookDelivery {
    pub number: i64,
    pub webhook: String,
    /// The event's type.
    pub kind: String,
    pub body: String,
    pub state: DeliveryState,
    pub attempts: u32,
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    pub tried_at: Option<Timestamp>,
    /// The status of the last response.
    pub status: Option<u16>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// A webhook with the columns that are not shown.
pub(super) struct WebhookRow {
    pub(super) webhook: Webhook,
    pub(super) workspace: String,
    pub(super) sealed: Vec<u8>,
    pub(super) cursor: i64,
}

impl Store {
    pub(super) fn add_webhook(&self, row: &WebhookRow) -> Result<(), StoreError> {
        let WebhookRow { webhook, workspace, sealed, cursor } = row;
        let insert = "INSERT INTO webhooks (id, workspace, url, events, description, created_ms, sealed, cursor) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let events = serde_json::to_string(&webhook.events)?;
        let created = webhook.created_at.as_millisecond();
        let values = params![webhook.id, workspace, webhook.url, events, webhook.description, created, sealed, cursor];
        self.lastingly(|connection| connection.run(insert, values)).map(drop)
    }

    pub(super) fn webhooks(&self, workspace: &WorkspaceName) -> Result<Vec<WebhookRow>, StoreError> {
        let all = "SELECT * FROM webhooks WHERE workspace = ?1 ORDER BY created_ms, id";
        self.connection().all(all, [workspace.as_str()], read_webhook)
    }

    pub(super) fn all_webhooks(&self) -> Result<Vec<WebhookRow>, StoreError> {
        self.connection().all("SELECT * FROM webhooks", [], read_webhook)
    }

    pub(super) fn webhook(&self, id: &str) -> Result<Option<WebhookRow>, StoreError> {
        self.connection().find("SELECT * FROM webhooks WHERE id = ?1", [id], read_webhook)
    }

    /// Removes a webhook and its deliveries. Returns false if there is none.
    pub(super) fn remove_webhook(&self, workspace: &WorkspaceName, id: &str) -> Result<bool, StoreError> {
        let delete = "DELETE FROM webhooks WHERE workspace = ?1 AND id = ?2";
        self.lastingly(|connection| connection.run(delete, [workspace.as_str(), id]))
    }

    /// Adds deliveries and moves the webhook's cursor, both or neither. Returns false if another process did it before.
    pub(super) fn add_deliveries(
        &self,
        row: &WebhookRow,
        cursor: i64,
        deliveries: &[(String, String)],
    ) -> Result<bool, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let moved = transaction.run(
            "UPDATE webhooks SET cursor = ?3 WHERE id = ?1 AND cursor = ?2",
            params![row.webhook.id, row.cursor, cursor],
        )?;
        if !moved {
            return Ok(false);
        }
        let now = Timestamp::now().as_millisecond();
        for (kind, body) in deliveries {
            transaction.run(
                "INSERT INTO webhook_deliveries (webhook, kind, body, state, attempts, due_ms, created_ms) \
                 VALUES (?1, ?2, ?3, 'pending', 0, ?4, ?4)",
                params![row.webhook.id, kind, body, now],
            )?;
        }
        if !deliveries.is_empty() {
            let last = "SELECT number FROM webhook_deliveries WHERE webhook = ?1 AND state = 'pending' \
                        ORDER BY number DESC LIMIT 1 OFFSET ?2";
            let fail = format!(
                "UPDATE webhook_deliveries SET state = 'failed', error = 'too many deliveries were waiting' \
                 WHERE webhook = ?1 AND state = 'pending' AND number <= ({last})"
            );
            transaction.run(&fail, params![row.webhook.id, MOST_PENDING])?;
            let oldest =
                "SELECT number FROM webhook_deliveries WHERE webhook = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2";
            let delete = format!(
                "DELETE FROM webhook_deliveries WHERE webhook = ?1 AND state <> 'pending' AND number <= ({oldest})"
            );
            transaction.run(&delete, params![row.webhook.id, KEPT])?;
        }
        transaction.commit()?;
        Ok(true)
    }

    /// The newest deliveries of a webhook, the newest first.
    pub(super) fn deliveries(&self, webhook: &str, limit: u32) -> Result<Vec<WebhookDelivery>, StoreError> {
        let newest = "SELECT * FROM webhook_deliveries WHERE webhook = ?1 ORDER BY number DESC LIMIT ?2";
        self.connection().all(newest, params![webhook, limit], read_delivery)
    }

    /// Pending deliveries whose time has come, few of each webhook, so that a slow receiver does not block others.
    pub(super) fn due_deliveries(&self, now: Timestamp, limit: u32) -> Result<Vec<WebhookDelivery>, StoreError> {
        let ranked = "SELECT *, row_number() OVER (PARTITION BY webhook ORDER BY due_ms, number) AS place \
                      FROM webhook_deliveries WHERE state = 'pending' AND due_ms <= ?1";
        let due = format!("SELECT * FROM ({ranked}) WHERE place <= ?3 ORDER BY due_ms, number LIMIT ?2");
        self.connection().all(&due, params![now.as_millisecond(), limit, OF_ONE_WEBHOOK], read_delivery)
    }

    /// When the next pending delivery is due.
    pub(super) fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let first = "SELECT due_ms FROM webhook_deliveries WHERE state = 'pending' ORDER BY due_ms LIMIT 1";
        self.connection().find(first, [], |row| time(row, "due_ms"))
    }

    /// Keeps other processes from sending a delivery until `until`. Returns false if one of them was faster.
    pub(super) fn claim_delivery(&self, delivery: &WebhookDelivery, until: Timestamp) -> Result<bool, StoreError> {
        let claim = "UPDATE webhook_deliveries SET due_ms = ?3 WHERE number = ?1 AND due_ms = ?2 AND state = 'pending'";
        let due = delivery.due_at.as_millisecond();
        self.connection().run(claim, params![delivery.number, due, until.as_millisecond()])
    }

    pub(super) fn finish_attempt(&self, delivery: &WebhookDelivery) -> Result<(), StoreError> {
        let update = "UPDATE webhook_deliveries SET state = ?2, attempts = ?3, due_ms = ?4, tried_ms = ?5, status = ?6, \
                      error = ?7 WHERE number = ?1";
        let tried = delivery.tried_at.map(Timestamp::as_millisecond);
        let (state, due) = (delivery.state.name(), delivery.due_at.as_millisecond());
        let values = params![delivery.number, state, delivery.attempts, due, tried, delivery.status, delivery.error];
        self.connection().run(update, values).map(drop)
    }

    /// Makes a delivery pending again. Returns false if the webhook has none with this number.
    pub(super) fn replay_delivery(&self, webhook: &str, number: i64, now: Timestamp) -> Result<bool, StoreError> {
        let update = "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, due_ms = ?3 \
                      WHERE webhook = ?1 AND number = ?2";
        self.connection().run(update, params![webhook, number, now.as_millisecond()])
    }
}

fn read_webhook(row: &Row<'_>) -> rusqlite::Result<WebhookRow> {
    let events: String = row.get("events")?;
    Ok(WebhookRow {
        webhook: Webhook {
            id: row.get("id")?,
            url: row.get("url")?,
            events: serde_json::from_str(&events).unwrap_or_default(),
            description: row.get("description")?,
            created_at: time(row, "created_ms")?,
        },
        workspace: row.get("workspace")?,
        sealed: row.get("sealed")?,
        cursor: row.get("cursor")?,
    })
}

fn read_delivery(row: &Row<'_>) -> rusqlite::Result<WebhookDelivery> {
    let tried: Option<i64> = row.get("tried_ms")?;
    Ok(WebhookDelivery {
        number: row.get("number")?,
        webhook: row.get("webhook")?,
        kind: row.get("kind")?,
        body: row.get("body")?,
        state: DeliveryState::parse(&row.get::<_, String>("state")?),
        attempts: row.get("attempts")?,
        due_at: time(row, "due_ms")?,
        created_at: time(row, "created_ms")?,
        tried_at: tried.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        status: row.get("status")?,
        error: row.get("error")?,
    })
}
