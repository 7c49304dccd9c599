//! Rows of requests that have an idempotency key, with their answers.

use jiff::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, parsed, time};

use super::keys::{BodyHash, StoredAnswer};
use crate::store::Store;

/// Bodies up to this size do not count against a workspace's budget. The schema's index has the same number.
const SMALL_BODY: usize = 16_384;
/// How many bytes the larger bodies of a workspace may take in total.
const LARGE_BODIES_BUDGET: i64 = 256 << 20;

/// Names a row and the process that may change it.
#[derive(Debug, Clone)]
pub struct KeyClaim {
    pub workspace: String,
    pub key: String,
    pub owner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    Running,
    Interrupted,
    Done,
}

#[derive(Debug, Clone)]
pub struct IdempotencyRow {
    pub route: String,
    pub body_hash: BodyHash,
    pub owner: String,
    pub started_at: Timestamp,
    pub state: RequestState,
    pub object: Option<String>,
    pub status: u16,
    /// Missing if the answer was too large to store, or has not been sent yet.
    pub answer: Option<StoredAnswer>,
}

impl Store {
    /// Inserts a key. If it exists already, this changes nothing and returns its row.
    pub(crate) fn claim_key(
        &self,
        claim: &KeyClaim,
        route: &str,
        body_hash: &BodyHash,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>, StoreError> {
        let mut connection = self.connection();
        // Immediate: of two processes with the same key, one must wait and then see the row of the other.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let KeyClaim { workspace, key, owner } = claim;
        let stored = "SELECT * FROM idempotency WHERE workspace = ?1 AND key = ?2";
        let found = transaction.find(stored, [workspace, key], read)?;
        if found.is_none() {
            transaction.run(
                "INSERT INTO idempotency (workspace, key, route, body_hash, owner, started_ms, state) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running')",
                params![workspace, key, route, body_hash.as_bytes(), owner, now.as_millisecond()],
            )?;
        }
        transaction.commit()?;
        Ok(found)
    }

    pub(crate) fn has_key(&self, workspace: &str, key: &str) -> Result<bool, StoreError> {
        let found = "SELECT 1 FROM idempotency WHERE workspace = ?1 AND key = ?2";
        Ok(self.connection().find(found, [workspace, key], |_| Ok(()))?.is_some())
    }

    pub(crate) fn attach_object(&self, claim: &KeyClaim, object: &str) -> Result<(), StoreError> {
        self.connection().run(
            "UPDATE idempotency SET object = ?4 WHERE workspace = ?1 AND key = ?2 AND owner = ?3 AND state = 'running'",
            params![claim.workspace, claim.key, claim.owner, object],
        )
        .map(drop)
    }

    /// Stores the answer. If the body is over the budget, only the status is stored.
    pub(crate) fn finish_key(
        &self,
        claim: &KeyClaim,
        answer: &StoredAnswer,
        body_limit: usize,
    ) -> Result<(), StoreError> {
        let headers = serde_json::to_string(&answer.headers)?;
        let connection = self.connection();
        let kept = answer.body.len() <= SMALL_BODY || {
            let taken =
                "SELECT ifnull(sum(body_bytes), 0) FROM idempotency WHERE workspace = ?1 AND body_bytes > 16384";
            let taken: Option<i64> = connection.find(taken, [&claim.workspace], |row| row.get(0))?;
            let total = taken.unwrap_or_default() + answer.body.len() as i64;
            answer.body.len() <= body_limit && total <= LARGE_BODIES_BUDGET
        };
        let body = kept.then_some(answer.body.as_slice());
        let (KeyClaim { workspace, key, owner }, bytes) = (claim, body.map_or(0, <[u8]>::len) as i64);
        let done = "UPDATE idempotency SET state = 'done', status = ?4, headers = ?5, body = ?6, body_bytes = ?7 \
             WHERE workspace = ?1 AND key = ?2 AND owner = ?3 AND state = 'running'";
        connection.run(done, params![workspace, key, owner, answer.status, headers, body, bytes]).map(drop)
    }

    pub(crate) fn interrupt_key(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        self.connection()
            .run(
                "UPDATE idempotency SET state = 'interrupted' \
                 WHERE workspace = ?1 AND key = ?2 AND owner = ?3 AND state = 'running'",
                params![claim.workspace, claim.key, claim.owner],
            )
            .map(drop)
    }

    /// Deletes the row of a request that had no effect, so that a retry runs.
    pub(crate) fn forget_key(&self, claim: &KeyClaim) -> Result<(), StoreError> {
        self.connection()
            .run(
                "DELETE FROM idempotency WHERE workspace = ?1 AND key = ?2 AND owner = ?3 AND state = 'running'",
                params![claim.workspace, claim.key, claim.owner],
            )
            .map(drop)
    }

    /// Deletes the key if its row is still the one that began at `started_at`.
    pub(crate) fn expire_key(&self, claim: &KeyClaim, started_at: Timestamp) -> Result<(), StoreError> {
        self.connection()
            .run(
                "DELETE FROM idempotency WHERE workspace = ?1 AND key = ?2 AND started_ms = ?3",
                params![claim.workspace, claim.key, started_at.as_millisecond()],
            )
            .map(drop)
    }

    /// Deletes requests that began before `then`, except those that a living process still runs.
    pub(crate) fn forget_keys(&self, then: Timestamp, is_alive: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let then = then.as_millisecond();
        let connection = self.connection();
        connection.run("DELETE FROM idempotency WHERE started_ms < ?1 AND state <> 'running'", [then])?;
        let owners = "SELECT DISTINCT owner FROM idempotency WHERE started_ms < ?1";
        let owners: Vec<String> = connection.all(owners, [then], |row| row.get(0))?;
        for owner in owners.iter().filter(|owner| !is_alive(owner)) {
            connection.run("DELETE FROM idempotency WHERE started_ms < ?1 AND owner = ?2", params![then, owner])?;
        }
        Ok(())
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<IdempotencyRow> {
    let hash: [u8; 32] = row.get("body_hash")?;
    let status = row.get::<_, Option<u16>>("status")?.unwrap_or_default();
    let headers: Option<String> = row.get("headers")?;
    let body: Option<Vec<u8>> = row.get("body")?;
    let answer = headers.zip(body).and_then(|(headers, body)| {
        // An answer with unreadable headers counts as not stored, so the request does not run again.
        Some(StoredAnswer { status, headers: serde_json::from_str(&headers).ok()?, body })
    });
    Ok(IdempotencyRow {
        route: row.get("route")?,
        body_hash: BodyHash::from_bytes(hash),
        owner: row.get("owner")?,
        started_at: time(row, "started_ms")?,
        state: parsed(row, "state", |state| match state {
            "running" => Some(RequestState::Running),
            "interrupted" => Some(RequestState::Interrupted),
            "done" => Some(RequestState::Done),
            _ => None,
        })?,
        object: row.get("object")?,
        status,
        answer,
    })
}
