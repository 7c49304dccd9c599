//! Evicting what can be made again: templates of OCI images, and bakes of sizes that templates do not have themselves.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sandling_image::ContentId;

use super::instance::Engine;
use crate::machine::{EvictableTemplate, StoredBake};
use crate::store::StoreError;

/// Something that a workspace caused, that nothing stands on and that can be made again.
pub struct Evictable {
    pub what: EvictableKind,
    pub bytes: u64,
    pub used_at: Timestamp,
}

pub enum EvictableKind {
    /// The template of an OCI image.
    Template(EvictableTemplate),
    /// A bake in another size than its template's.
    Bake(StoredBake),
}

/// What living sandboxes and snapshots stand on.
struct InUse {
    images: BTreeSet<ContentId>,
    /// By image and key.
    bakes: BTreeSet<(String, String)>,
}

impl Engine {
    /// What can be evicted to make room for a workspace, the one that was not used for longest first. There is nothing if
    /// other homes may use the same templates.
    pub fn evictable(&self, workspace: &str) -> Result<Vec<Evictable>, StoreError> {
        let home = &self.config.home;
        let Some(in_use) = self.in_use()?.filter(|_| home.templates().starts_with(home.root())) else {
            return Ok(Vec::new());
        };
        let machines = &self.parts.machines;
        let templates = machines.evictable_templates(workspace, &in_use.images).into_iter().map(|template| Evictable {
            bytes: template.bytes,
            used_at: template.used_at,
            what: EvictableKind::Template(template),
        });
        let bakes = machines.evictable_bakes(workspace, &in_use.bakes).into_iter().map(|bake| Evictable {
            bytes: bake.bytes,
            used_at: bake.used_at,
            what: EvictableKind::Bake(bake),
        });
        let mut all: Vec<_> = templates.chain(bakes).collect();
        all.sort_by_key(|evictable| evictable.used_at);
        Ok(all)
    }

    /// Evicts it, unless it came into use meanwhile. Returns how many bytes that freed.
    pub async fn evict(&self, workspace: &str, evictable: &Evictable) -> Result<u64, StoreError> {
        let Some(in_use) = self.in_use()? else { return Ok(0) };
        let machines = &self.parts.machines;
        match &evictable.what {
            EvictableKind::Template(template) if !in_use.images.contains(&template.image) => {
                let removed = machines.remove_template(workspace, &template.name, &template.image, Some(in_use.images));
                Ok(removed.await.unwrap_or_else(|error| {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(template = template.name, error, "an unused template could not be evicted");
                    0
                }))
            }
            EvictableKind::Bake(bake) if !in_use.bakes.contains(&bake.name()) => Ok(machines.evict_bake(bake).await),
            EvictableKind::Template(_) | EvictableKind::Bake(_) => Ok(0),
        }
    }

    /// `None` if the row of a sandbox or a snapshot cannot be read.
    fn in_use(&self) -> Result<Option<InUse>, StoreError> {
        let store = &self.parts.store;
        let (Some(living), Some(saved)) = (store.living_sandboxes()?.complete(), store.all_snapshots()?) else {
            return Ok(None);
        };
        let of_sandboxes = living.into_iter().map(|row| (row.info.image, row.info.bake));
        let of_snapshots = saved.into_iter().map(|(snapshot, _)| (snapshot.image.to_string(), snapshot.bake));
        let bakes: BTreeSet<_> = of_sandboxes.chain(of_snapshots).collect();
        let images = bakes.iter().filter_map(|(image, _)| image.parse().ok()).collect();
        Ok(Some(InUse { images, bakes }))
    }

    /// Images that sandboxes and snapshots of this home stand on, or `None` if the row of one cannot be read.
    pub(super) fn images_in_use(&self) -> Result<Option<BTreeSet<ContentId>>, StoreError> {
        Ok(self.in_use()?.map(|in_use| in_use.images))
    }
}
