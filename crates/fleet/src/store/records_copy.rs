//! A copy of the records of durable snapshots, in the store. If etcd is lost, a new one begins with it, so that snapshots of
//! nodes that are lost, too, stay durable.

use std::collections::BTreeMap;

use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::blobs::Blobs;
use super::error::StoreError;
use super::manifest::Scope;
use super::registry::{SNAPSHOTS, SnapshotRecords};
use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError, Revision};

const PATH: &str = "records";
const WHAT: &str = "the copy of its records";
const VERSION: u32 = 1;
/// Some 100,000 records.
const LARGEST: usize = 64 << 20;
const PAGE: usize = 500;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    /// As they are in the ledger, by key, with their proofs.
    records: BTreeMap<String, String>,
}

/// No workspace has this name.
fn scope() -> Scope {
    Scope::Workspace("/records".to_owned())
}

impl Blobs {
    /// Replaces the copy.
    pub async fn put_records(&self, records: &BTreeMap<String, String>) -> Result<(), StoreError> {
        let document = Document { version: VERSION, records: records.clone() };
        let text = serde_json::to_vec(&document).expect("records are text");
        let pack = Some(text).filter(|text| text.len() <= LARGEST).and_then(|text| self.key(&scope()).pack(&text));
        let pack = pack.ok_or(StoreError::TooManyRecords { records: records.len() })?;
        self.replace(&Path::from(PATH), WHAT, pack.bytes).await
    }

    /// The copy, or nothing if there is none.
    pub async fn records(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let Some(bytes) = self.read(&Path::from(PATH), WHAT, LARGEST).await? else { return Ok(BTreeMap::new()) };
        let damaged = |why| StoreError::Damaged { store: self.shown().to_owned(), what: WHAT.to_owned(), why };
        let text = self.key(&scope()).unpack(&bytes, LARGEST).map_err(damaged)?;
        let document: Document = serde_json::from_slice(&text).map_err(|_| damaged("it cannot be read"))?;
        match document.version > VERSION {
            true => Err(StoreError::Newer(self.shown().to_owned())),
            false => Ok(document.records),
        }
    }
}

impl<L: Ledger, C: Clock> SnapshotRecords<'_, L, C> {
    /// All records that nodes have written, by key, and the revision from which on changes are new.
    pub async fn copy(&self) -> Result<(BTreeMap<String, String>, Revision), LedgerError> {
        let ledger = self.membership.ledger();
        let (mut all, mut after) = (BTreeMap::new(), None::<String>);
        let mut first = None;
        loop {
            let page = ledger.list(SNAPSHOTS, after.as_deref(), PAGE).await?;
            let since = *first.get_or_insert(page.revision);
            let genuine = page.records.iter().filter(|record| self.shared.proven(record).is_some());
            all.extend(genuine.map(|record| (record.key.to_string(), record.value.to_string())));
            match page.records.last() {
                Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
                _ => return Ok((all, since)),
            }
        }
    }

    /// Waits until a record has changed after a revision.
    pub async fn changed(&self, after: Revision) -> Result<(), LedgerError> {
        self.membership.ledger().changes(SNAPSHOTS, after).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use object_store::{ObjectStore, ObjectStoreExt};

    use super::super::registry::SnapshotRecord;
    use super::*;
    use crate::digest::Digest;
    use crate::ledger::{ModelLedger, Transaction, Write};
    use crate::membership::tests::{member, register};
    use crate::shared::SharedRecords;

    const GOLDEN: &str = include_str!("../../tests/golden/v1/store-records.json");

    #[tokio::test]
    async fn the_store_keeps_a_copy_of_the_records_that_only_nodes_read() {
        let (old, new) = (ModelLedger::default(), ModelLedger::default());
        let (a, b) = (member("a", &old), member("b", &new));
        register(&a).await;
        register(&b).await;
        let shared = SharedRecords::new(b"secret");
        let on_a = SnapshotRecords { membership: &a, shared: &shared };
        let on_b = SnapshotRecords { membership: &b, shared: &shared };
        let record = SnapshotRecord::new("a", Digest::of(b"manifest"), "hardware".to_owned(), "sandbox".to_owned());
        assert!(on_a.put("team", "1", None, &record).await.unwrap());
        old.commit(Transaction::default().then(Write::put("snapshot/team/2", "forged"))).await.unwrap();
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let blobs = Blobs::new(objects.clone(), "memory", b"secret");
        assert_eq!(blobs.records().await.unwrap(), BTreeMap::new());
        let (records, since) = on_a.copy().await.unwrap();
        assert_eq!(records.len(), 1);
        blobs.put_records(&records).await.unwrap();
        assert_eq!(blobs.records().await.unwrap(), records);
        let (key, value) = records.first_key_value().unwrap();
        new.commit(Transaction::default().then(Write::put(key, value))).await.unwrap();
        assert_eq!(on_b.get("team", "1").await.unwrap(), Some(record.clone()));

        assert!(on_a.put("team", "3", None, &record).await.unwrap());
        on_a.changed(since).await.unwrap();
        assert!(Blobs::new(objects.clone(), "memory", b"guess").records().await.is_err());
        let bytes = objects.get(&Path::from(PATH)).await.unwrap().bytes().await.unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("team"));
        let document: Document = serde_json::from_str(GOLDEN).unwrap();
        assert_eq!(document.records.len(), 1);
    }
}
