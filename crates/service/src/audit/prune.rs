//! Deletes entries that are too old or too many. What is deleted is verified first, and the chain continues from it.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::Query;

use super::chain::Follower;
use super::entry::AuditKind;
use super::rows::{self, ChainRow};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// How much of the log is kept, for each workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRetention {
    /// Changes.
    pub entries: u32,
    /// Refused requests, which never push out changes.
    pub refusals: u32,
    /// For how many runs code and output are kept.
    pub recordings: u32,
    pub age: Duration,
}

impl Default for AuditRetention {
    fn default() -> Self {
        Self { entries: 100_000, refusals: 10_000, recordings: 2_000, age: Duration::from_secs(365 * 24 * 3600) }
    }
}

impl Store {
    /// Prunes the entries of every workspace, including deleted ones.
    pub(crate) fn prune_all_audit(&self, keep: &AuditRetention, now: Timestamp) -> Result<(), StoreError> {
        let chains = rows::chains(&self.connection())?;
        for chain in chains {
            self.prune_audit(&chain.workspace, chain.kind, keep, now)?;
        }
        Ok(())
    }

    /// Deletes entries of a chain beyond its limits. Each workspace has limits of its own, so that none can push out
    /// the entries of another.
    pub(crate) fn prune_audit(
        &self,
        workspace: &WorkspaceName,
        kind: AuditKind,
        keep: &AuditRetention,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.run(
            "DELETE FROM audit_recordings WHERE workspace = ?1 AND number <= (SELECT number FROM audit_recordings \
             WHERE workspace = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
            params![workspace.as_str(), keep.recordings],
        )?;
        if let Some(chain) = rows::find_chain(&transaction, workspace, kind)? {
            let last = last_to_delete(&transaction, &chain, keep, now)?;
            delete_up_to(&transaction, &chain, last)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The number of the newest entry that is beyond a limit.
fn last_to_delete(
    connection: &Connection,
    chain: &ChainRow,
    keep: &AuditRetention,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let most = match chain.kind {
        AuditKind::Change => keep.entries,
        AuditKind::Refusal => keep.refusals,
    };
    let (workspace, kind) = (chain.workspace.as_str(), chain.kind.as_str());
    let too_many: Option<i64> = connection.find(
        "SELECT number FROM audit WHERE workspace = ?1 AND kind = ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3",
        params![workspace, kind, most],
        |row| row.get(0),
    )?;
    let oldest = now.as_millisecond().saturating_sub(keep.age.as_millis().try_into().unwrap_or(i64::MAX));
    // Up to the first entry that is young enough, which SQLite finds without reading the rest.
    let young: Option<i64> = connection.find(
        "SELECT number FROM audit WHERE workspace = ?1 AND kind = ?2 AND time_ms >= ?3 ORDER BY number LIMIT 1",
        params![workspace, kind, oldest],
        |row| row.get(0),
    )?;
    let too_old = young.map_or(chain.head.0, |number| number - 1);
    Ok(too_many.unwrap_or(0).max(too_old))
}

/// Deletes entries and moves the anchor to the last of them. If they do not fit the chain, the chain's row says so from
/// then on.
fn delete_up_to(connection: &Connection, chain: &ChainRow, last: i64) -> Result<(), StoreError> {
    let (mut anchor, mut broken) = (chain.anchor, chain.broken);
    let mut follower = Follower { last: anchor.1 };
    rows::for_each_entry(connection, chain, (chain.anchor.0, last), |entry| {
        if let Err(found) = follower.follow(entry.as_ref().map_err(|number| *number)) {
            broken = broken.or(Some(found.number));
        }
        anchor = match entry {
            Ok(entry) => (entry.number, entry.link.map_or(anchor.1, |link| link.hash)),
            Err(number) => (number, anchor.1),
        };
        // Entries after a break are checked against each other.
        follower.last = anchor.1;
        Ok(())
    })?;
    let (workspace, kind) = (chain.workspace.as_str(), chain.kind.as_str());
    connection
        .run("DELETE FROM audit WHERE workspace = ?1 AND kind = ?2 AND number <= ?3", params![workspace, kind, last])?;
    connection.run(
        "UPDATE audit_chains SET anchor_number = ?3, anchor_hash = ?4, broken_number = ?5 \
         WHERE workspace = ?1 AND kind = ?2",
        params![workspace, kind, anchor.0, anchor.1.0, broken],
    )?;
    Ok(())
}
