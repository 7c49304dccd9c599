//! Collects the garbage of images and builds: cached steps, layers, templates of images, and bakes of other sizes.
//!
//! All of them can be made again. The collector evicts what was not used for weeks and what exceeds the limits, the least
//! recently used first, and never what a sandbox or a snapshot stands on.

use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use sandling_engine::{Engine, EvictableKind};

use crate::builds::Builds;
use crate::cache::{CacheEntry, CacheLimits, Freed, superfluous};
use crate::images::Images;
use crate::workspaces::{WorkspaceName, Workspaces};

/// How much the templates of images and the bakes of other sizes of one workspace may take.
const TEMPLATES: CacheLimits = CacheLimits { bytes: 64 << 30, entries: usize::MAX };

pub struct GarbageCollector {
    engine: Arc<Engine>,
    images: Arc<Images>,
    builds: Arc<Builds>,
    workspaces: Workspaces,
}

impl GarbageCollector {
    pub(crate) fn new(engine: Arc<Engine>, images: Arc<Images>, builds: Arc<Builds>, workspaces: Workspaces) -> Self {
        Self { engine, images, builds, workspaces }
    }

    /// Evicts what is superfluous in all workspaces.
    pub async fn collect(&self) {
        let collected = self.collect_all().await;
        match collected {
            Ok(freed) if freed == Freed::default() => {}
            Ok(freed) => tracing::info!(?freed, "evicted what images and builds have not used for long"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot evict what images and builds left");
            }
        }
    }

    async fn collect_all(&self) -> Result<Freed, StoreError> {
        self.engine.settled().await;
        let mut freed = self.images.trim_layers();
        for workspace in self.workspaces.list()? {
            freed += self.builds.trim_steps(workspace.name.as_str()).await?;
            freed += self.trim_templates(&workspace.name).await?;
        }
        Ok(freed)
    }

    /// Empties a workspace's caches of steps and layers, and evicts its templates and bakes that are superfluous.
    pub async fn empty_caches(&self, workspace: &WorkspaceName) -> Result<Freed, StoreError> {
        self.engine.settled().await;
        let mut freed = self.builds.evict_steps(workspace.as_str(), 0).await?;
        freed += self.images.evict_layers(workspace);
        freed += self.trim_templates(workspace).await?;
        Ok(freed)
    }

    async fn trim_templates(&self, workspace: &WorkspaceName) -> Result<Freed, StoreError> {
        let evictable = self.engine.evictable(workspace.as_str())?.into_iter();
        let entries = evictable.map(|item| CacheEntry { bytes: item.bytes, used_at: item.used_at, item });
        let mut freed = Freed::default();
        for item in superfluous(entries.collect(), TEMPLATES, Timestamp::now()) {
            let bytes = self.engine.evict(workspace.as_str(), &item).await?;
            // A bake may have gone with its template, or either may be in use by now.
            let count = usize::from(bytes > 0);
            freed += match item.what {
                EvictableKind::Template(_) => Freed { templates: count, bytes, ..Freed::default() },
                EvictableKind::Bake(_) => Freed { bakes: count, bytes, ..Freed::default() },
            };
        }
        Ok(freed)
    }
}
