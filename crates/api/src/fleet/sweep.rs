//! Removes from the store what no durable snapshot needs. One node does it for all.

use std::time::Duration;

use sandling_fleet::LedgerError;
use sandling_fleet::store::{GRACE, StoreError, sweep};

use super::durable::{FleetStore, text};
use super::member::Fleet;

const FIRST_AFTER: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(6 * 3600);
/// Chooses the node.
const TASK: &str = "store sweep";

#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Fleet {
    /// Runs until the future is dropped.
    pub(super) async fn sweep_store(&self, store: &FleetStore) {
        let mut pause = FIRST_AFTER;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            let is_chosen = self.membership.chosen_for(TASK).as_deref() == Some(&*self.settings.name);
            if !is_chosen || self.membership.writer().is_none() {
                continue;
            }
            let snapshots = || async {
                let all = self.records().all().await?;
                Ok::<_, SweepError>(
                    all.into_iter().map(|(workspace, _, record)| (workspace, record.manifest)).collect(),
                )
            };
            match sweep(&store.blobs, GRACE, snapshots).await {
                Ok(swept) if swept.objects > 0 => {
                    tracing::info!(objects = swept.objects, bytes = swept.bytes, "swept the store");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = text(&error), "the store could not be swept; the next sweep tries again")
                }
            }
        }
    }
}
