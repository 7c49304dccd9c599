//! Which snapshots are durable: a record in the ledger for each, which names its manifest.
//!
//! A record is written when everything that it refers to is in the store, and carries a proof that only a node can make. No
//! node follows these records, because there are as many as snapshots.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::digest::Digest;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Record, Revision, Transaction, Write};
use crate::membership::Membership;
use crate::shared::SharedRecords;

pub(super) const SNAPSHOTS: &str = "snapshot/";
const PAGE: usize = 500;
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub version: u32,
    /// Where it was made.
    pub node: String,
    pub manifest: Digest,
    pub name: Option<String>,
    /// Whether it is in its workspace's list. The image of a hibernated sandbox is not.
    pub listed: bool,
    /// The sandbox that it is of.
    pub sandbox: String,
    /// What a host must have to restore it: [`MadeOn::fingerprint`](super::MadeOn::fingerprint).
    pub made_on: String,
    /// What clients see of it while its node is down.
    pub view: Value,
    /// What later versions add.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl SnapshotRecord {
    pub fn new(node: &str, manifest: Digest, made_on: String, sandbox: String) -> Self {
        let (name, view, unknown) = (None, Value::Null, Map::new());
        Self { version: VERSION, node: node.to_owned(), manifest, name, listed: false, sandbox, made_on, view, unknown }
    }
}

/// The records of a fleet, as one node reads and writes them.
pub struct SnapshotRecords<'a, L, C> {
    pub membership: &'a Membership<L, C>,
    pub shared: &'a SharedRecords,
}

impl<L: Ledger, C: Clock> SnapshotRecords<'_, L, C> {
    /// Writes a record in place of the one of this revision. A snapshot that moves belongs to two nodes for a moment, and the
    /// slower one must not undo what the other one has written. False if this node may not write now, or the record has
    /// changed: then the caller looks again.
    pub async fn put(
        &self,
        workspace: &str,
        id: &str,
        at: Option<Revision>,
        record: &SnapshotRecord,
    ) -> Result<bool, LedgerError> {
        self.write(at, Transaction::default(), self.proven(workspace, id, record)).await
    }

    /// The write of a record, with a proof.
    pub(super) fn proven(&self, workspace: &str, id: &str, record: &SnapshotRecord) -> Write {
        let key = key(workspace, id);
        let body = serde_json::to_string(record).expect("a record has only text");
        let value = self.shared.prove(&key, &body);
        Write::put(key, value)
    }

    /// Removes the record of a node's snapshot. One that another node has written stays. False if this node may not write
    /// now, or the record has changed just now.
    pub async fn remove(&self, workspace: &str, id: &str, node: &str) -> Result<bool, LedgerError> {
        match self.find(workspace, id).await? {
            (Some(record), at) if record.node == node => {
                self.write(at, Transaction::default(), Write::Delete { key: key(workspace, id) }).await
            }
            _ => Ok(true),
        }
    }

    /// Makes the record of a snapshot that has moved here from another node this node's, if there is one. Returns it, or
    /// nothing if the snapshot is not durable.
    pub async fn take_over(
        &self,
        workspace: &str,
        id: &str,
        from: &str,
    ) -> Result<Option<SnapshotRecord>, LedgerError> {
        let (found, at) = self.find(workspace, id).await?;
        let Some(found) = found.filter(|record| record.node == from) else { return Ok(None) };
        let ours = SnapshotRecord { node: self.membership.name().to_owned(), ..found };
        match self.put(workspace, id, at, &ours).await? {
            true => Ok(Some(ours)),
            false => {
                Err(LedgerError::Unavailable("the record has changed, or this node has lost its lease".to_owned()))
            }
        }
    }

    /// Writes on the conditions of a transaction, and if the record is still at this revision.
    pub(super) async fn write(
        &self,
        at: Option<Revision>,
        conditions: Transaction,
        write: Write,
    ) -> Result<bool, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(false) };
        let unchanged = conditions.when(write.key(), at.map_or(Expect::Absent, Expect::Modified));
        let outcome = self.membership.ledger().commit(me.fence(unchanged.then(write))).await?;
        Ok(matches!(outcome, Outcome::Committed(_)))
    }

    pub async fn get(&self, workspace: &str, id: &str) -> Result<Option<SnapshotRecord>, LedgerError> {
        Ok(self.find(workspace, id).await?.0)
    }

    /// A record, and the revision that a write in its place names.
    pub async fn find(
        &self,
        workspace: &str,
        id: &str,
    ) -> Result<(Option<SnapshotRecord>, Option<Revision>), LedgerError> {
        let found = self.membership.ledger().get(&key(workspace, id)).await?;
        let record = found.as_ref().map_or(Ok(None), |record| self.read(record))?;
        Ok((record, found.map(|found| found.modified)))
    }

    /// Those of a workspace, with their ids.
    pub async fn of(&self, workspace: &str) -> Result<Vec<(String, SnapshotRecord)>, LedgerError> {
        let all = self.with_prefix(&key(workspace, "")).await?;
        Ok(all.into_iter().map(|(_, id, record)| (id, record)).collect())
    }

    /// All, with their workspaces and ids.
    pub async fn all(&self) -> Result<Vec<(String, String, SnapshotRecord)>, LedgerError> {
        self.with_prefix(SNAPSHOTS).await
    }

    async fn with_prefix(&self, prefix: &str) -> Result<Vec<(String, String, SnapshotRecord)>, LedgerError> {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.membership.ledger().list(prefix, after.as_deref(), PAGE).await?;
            for record in &page.records {
                let Some((workspace, id)) = record.key.strip_prefix(SNAPSHOTS).and_then(|key| key.split_once('/'))
                else {
                    continue;
                };
                let read = self.read(record)?;
                all.extend(read.map(|read| (workspace.to_owned(), id.to_owned(), read)));
            }
            match page.records.last() {
                Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
                _ => return Ok(all),
            }
        }
    }

    /// Nothing if no node has written it. What a newer node has written is an error: it must not be taken for garbage.
    fn read(&self, record: &Record) -> Result<Option<SnapshotRecord>, LedgerError> {
        let Some(body) = self.shared.proven(record) else { return Ok(None) };
        let read = serde_json::from_str(&body).ok().filter(|record: &SnapshotRecord| record.version == VERSION);
        let newer =
            || LedgerError::Unexpected(format!("the record {} is of a newer version; update this node", record.key));
        read.ok_or_else(newer).map(Some)
    }
}

fn key(workspace: &str, id: &str) -> String {
    format!("{SNAPSHOTS}{workspace}/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};

    #[tokio::test]
    async fn a_durable_snapshot_is_found_by_all_nodes_and_a_forged_one_by_none() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        let (ours, theirs) = (SharedRecords::new(b"secret"), SharedRecords::new(b"guess"));
        let on_a = SnapshotRecords { membership: &a, shared: &ours };
        let on_b = SnapshotRecords { membership: &b, shared: &ours };
        let forger = SnapshotRecords { membership: &a, shared: &theirs };
        let record = SnapshotRecord::new("a", Digest::of(b"manifest"), "hardware".to_owned(), "sandbox".to_owned());
        assert!(!on_a.put("team", "1", None, &record).await.unwrap(), "it has no lease yet");
        register(&a).await;
        assert!(on_a.put("team", "1", None, &record).await.unwrap());
        assert!(on_a.put("other", "2", None, &record).await.unwrap());
        assert!(forger.put("team", "3", None, &record).await.unwrap());
        assert_eq!(on_b.get("team", "1").await.unwrap(), Some(record.clone()));
        assert_eq!(on_b.get("team", "3").await.unwrap(), None);
        assert_eq!(on_b.of("team").await.unwrap(), [("1".to_owned(), record.clone())]);
        assert_eq!(on_b.all().await.unwrap().len(), 2);
        assert!(on_a.remove("team", "1", "a").await.unwrap());
        assert_eq!(on_b.of("team").await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_snapshot_that_moves_stays_durable_whoever_is_slow() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let shared = SharedRecords::new(b"secret");
        let [on_a, on_b] = [&a, &b].map(|membership| SnapshotRecords { membership, shared: &shared });
        let of = |node: &str| SnapshotRecord::new(node, Digest::of(b"manifest"), String::new(), String::new());
        let node = || async { on_a.get("team", "1").await.unwrap().map(|record| record.node) };
        assert_eq!(on_b.take_over("team", "1", "a").await.unwrap(), None, "it is not durable");

        let (_, before) = on_a.find("team", "1").await.unwrap();
        assert!(on_a.put("team", "1", before, &of("a")).await.unwrap());
        assert_eq!(on_b.take_over("team", "1", "a").await.unwrap(), Some(of("b")));
        // The node that had it deletes its copy, and an upload that began earlier ends there.
        assert!(on_a.remove("team", "1", "a").await.unwrap());
        assert!(!on_a.put("team", "1", before, &of("a")).await.unwrap());
        assert_eq!(node().await.as_deref(), Some("b"));
        assert!(on_b.remove("team", "1", "b").await.unwrap());
        assert_eq!(node().await, None);
    }
}
