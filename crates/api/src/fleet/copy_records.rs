//! Keeps a copy of the records of durable snapshots in the store, for the loss of etcd. One node of the fleet does that.

use std::time::Duration;

use sandling_engine::with_causes;
use sandling_fleet::{LedgerError, Revision};

use super::durable::FleetStore;
use super::member::Fleet;

const TASK: &str = "copy of the records";
/// What was made durable in this time may be missing in the copy.
const COPY_EVERY: Duration = Duration::from_secs(20);

impl Fleet {
    /// Runs until the future is dropped.
    pub(super) async fn copy_records(&self) {
        let Some(store) = &self.store else { return };
        // Of the last copy.
        let mut copied: Option<Revision> = None;
        loop {
            tokio::time::sleep(COPY_EVERY).await;
            let is_ours = self.membership.chosen_for(TASK).as_deref() == Some(self.membership.name());
            if !is_ours || self.membership.writer().is_none() {
                copied = None;
                continue;
            }
            if let Some(after) = copied {
                match self.records().changed(after).await {
                    Ok(()) | Err(LedgerError::Compacted { .. }) => {}
                    // Nothing has changed, or etcd does not answer.
                    Err(_) => continue,
                }
            }
            copied = self.copy_records_once(store, copied.is_none()).await.or(copied);
        }
    }

    /// Nothing if it failed: then it is tried again.
    async fn copy_records_once(&self, store: &FleetStore, is_first: bool) -> Option<Revision> {
        let (records, revision) = self.records().copy().await.ok()?;
        if records.is_empty() && is_first {
            // An etcd that has lost its data must not empty the copy.
            return Some(revision);
        }
        // Not even this goes to another fleet's store.
        let written = async {
            store.blobs.check().await?;
            store.blobs.put_records(&records).await
        };
        match written.await {
            Ok(()) => Some(revision),
            Err(error) => {
                tracing::warn!(
                    error = with_causes(&error),
                    "the records of snapshots cannot be copied to the store now"
                );
                None
            }
        }
    }
}
