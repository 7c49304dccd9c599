//! Removes from the store what no durable snapshot needs. One node does it for all. Each node removes its own old copies of
//! other nodes' snapshots.

use std::time::Duration;

use sandling_engine::with_causes;
use sandling_fleet::store::{GRACE, sweep};

use super::durable::FleetStore;
use super::member::Fleet;
use crate::app::App;

const FIRST_AFTER: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(6 * 3600);
/// Copies that no create has used for so long are removed.
pub(super) const COPIES_FOR: Duration = Duration::from_secs(24 * 3600);
/// Chooses the node.
const TASK: &str = "store sweep";

impl Fleet {
    /// Runs until the future is dropped.
    pub(super) async fn sweep_store(&self, app: &App, store: &FleetStore) {
        let mut pause = FIRST_AFTER;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            forget_copies(app).await;
            let is_chosen = self.membership.chosen_for(TASK).as_deref() == Some(&*self.settings.name);
            if !is_chosen || self.membership.writer().is_none() {
                continue;
            }
            match sweep(&store.blobs, GRACE, &self.records()).await {
                Ok(swept) if swept.objects > 0 => {
                    tracing::info!(objects = swept.objects, bytes = swept.bytes, "swept the store");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        error = with_causes(&error),
                        "the store could not be swept; the next sweep tries again"
                    )
                }
            }
        }
    }
}

async fn forget_copies(app: &App) {
    let since = jiff::Timestamp::now() - COPIES_FOR;
    for workspace in app.service.workspaces.list().unwrap_or_default() {
        if let Err(error) = app.engine.snapshots().forget_fetched(workspace.name.as_str(), since).await {
            tracing::warn!(error = with_causes(&error), "old copies of snapshots could not be removed");
        }
    }
}
