//! Removing bakes that nothing needs, because their workspace has used up its disk quota.

use std::collections::BTreeSet;

use super::instance::Engine;
use crate::store::StoreError;

impl Engine {
    /// Removes the bakes of sizes that this workspace was the first to use and that no sandbox or snapshot stands on.
    /// Returns whether there were any.
    pub async fn evict_bakes(&self, workspace: &str) -> Result<bool, StoreError> {
        let home = &self.config.home;
        // Other homes may use templates that are kept elsewhere.
        if !home.templates().starts_with(home.root()) {
            return Ok(false);
        }
        let store = &self.parts.store;
        let (Some(living), Some(saved)) = (store.living_sandboxes()?.complete(), store.all_snapshots()?) else {
            return Ok(false);
        };
        let of_sandboxes = living.into_iter().map(|row| (row.info.image, row.info.bake));
        let of_snapshots = saved.into_iter().map(|(snapshot, _)| (snapshot.image.to_string(), snapshot.bake));
        let in_use: BTreeSet<_> = of_sandboxes.chain(of_snapshots).collect();
        Ok(self.parts.machines.evict_bakes(workspace, &in_use).await)
    }
}
