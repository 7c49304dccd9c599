//! The engine: everything of one home directory, in one place.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_image::{ContentId, ImageStore};
use sandling_vmm::accelerator::{self, Probe, ResolveError};
use sandling_vmm::memory::place_library;
use tokio::sync::{broadcast, watch};

use crate::config::EngineConfig;
use crate::create::DEFAULT_WORKSPACE;
use crate::made::Maker;
use crate::network::{Groups, Outside, Vault};
use crate::owner::Owner;
use crate::process_cache::{Fallback, ProcessCache};
use crate::recover;
use crate::sandbox::{EndReason, Sandbox, SandboxId, SandboxInfo};
use crate::snapshot::{Overlays, SnapshotId};
use crate::standby::Shelf;
use crate::store::{Event, Store, StoreError};
use crate::template::{Shape, Template};
use crate::unreadable::SetAside;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the home directory cannot be used")]
    Home { source: std::io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the templates' directory cannot be used")]
    Templates(#[source] sandling_image::LoadError),
    #[error(transparent)]
    Accelerator(#[from] ResolveError),
}

/// Everything of one home directory. Several engines, in several processes, may share one.
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) probe: Probe,
    pub(crate) store: Store,
    pub(crate) owner: Owner,
    pub(crate) images: ImageStore,
    pub(crate) maker: Arc<Maker>,
    pub(crate) vault: Vault,
    pub(crate) outside: Outside,
    pub(crate) groups: Groups,
    pub(crate) templates: tokio::sync::Mutex<HashMap<Shape, Arc<Template>>>,
    events: broadcast::Sender<Event>,
    shelves: Mutex<HashMap<Shape, Arc<Shelf>>>,
    sandboxes: Mutex<Registry>,
    /// Sandboxes of dead engines of which it is not yet known whether they can be taken over.
    unsettled: watch::Sender<BTreeSet<SandboxId>>,
    pub(crate) sweeping: tokio::sync::Mutex<()>,
    pub(crate) overlays: Overlays,
    held_snapshots: Mutex<Vec<SnapshotId>>,
    pub(crate) set_aside: SetAside,
}

/// See [`Engine::hold_snapshot`].
pub(crate) struct HeldSnapshot {
    engine: Arc<Engine>,
    id: SnapshotId,
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        let mut held = self.engine.held_snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(at);
        }
    }
}

#[derive(Default)]
struct Registry {
    living: HashMap<SandboxId, Arc<Sandbox>>,
    closing: bool,
}

impl Engine {
    /// How often machines were restored from device state instead of their cached process, by reason.
    pub fn process_cache_fallbacks(&self) -> impl Iterator<Item = (Fallback, u64)> {
        self.maker.process_cache.fallbacks()
    }

    /// Opens a home directory, and takes over or ends what dead engines left there. An engine that takes over does
    /// so behind its other work: whoever asks for a sandbox waits for that one's fate and no other's.
    pub async fn open(config: EngineConfig) -> Result<Arc<Self>, OpenError> {
        let home_error = |source| OpenError::Home { source };
        config.home.prepare().map_err(home_error)?;
        let probe = accelerator::resolve(config.accelerator)?;
        let store = Store::open(&config.home.store())?;
        let engines = config.home.engines();
        let owner = if config.takeover { Owner::of_server(&engines) } else { Owner::new(&engines) };
        let owner = owner.map_err(home_error)?;
        let images = ImageStore::open(config.home.templates()).map_err(OpenError::Templates)?;
        let process_cache = match config.process_cache {
            true => ProcessCache::open(config.home.root(), probe.accelerator).map_err(home_error)?,
            false => ProcessCache::default(),
        };
        let maker = Arc::new(Maker {
            sandboxes: config.home.sandboxes(),
            engine: owner.id().to_owned(),
            launcher: config.launcher.clone(),
            library: place_library(config.home.root()).map_err(home_error)?,
            process_cache: Arc::new(process_cache),
        });
        let overlays = Overlays::new(config.home.snapshots());
        let (vault, outside) = (Vault::of(&config.home), Outside::new(&config.network));
        let engine = Arc::new(Self {
            config,
            vault,
            outside,
            groups: Groups::default(),
            probe,
            store,
            owner,
            images,
            maker,
            templates: Default::default(),
            events: broadcast::Sender::new(1024),
            shelves: Default::default(),
            sandboxes: Default::default(),
            sweeping: Default::default(),
            overlays,
            held_snapshots: Default::default(),
            unsettled: Default::default(),
            set_aside: Default::default(),
        });
        recover::recover(&engine).await?;
        engine.sweep_unfinished()?;
        engine.sweep_volumes()?;
        Ok(engine)
    }

    /// Which accelerator this host gives, and why.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    pub fn get(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.registry().living.get(id).cloned()
    }

    pub(crate) fn living(&self) -> Vec<Arc<Sandbox>> {
        self.registry().living.values().cloned().collect()
    }

    /// The sandboxes of this engine, oldest first.
    pub fn list(&self) -> Vec<SandboxInfo> {
        let mut infos: Vec<_> = self.registry().living.values().map(|sandbox| sandbox.info()).collect();
        infos.sort_by_key(|info| info.created_at);
        infos
    }

    /// The sandboxes of one workspace, oldest first. Before the engine has [`settled`](Self::settled), some of those
    /// that a dead engine left may be missing.
    pub fn list_of(&self, workspace: &str) -> Vec<SandboxInfo> {
        let mut infos = self.list();
        infos.retain(|info| info.workspace == workspace);
        infos.extend(self.unreadable_of(workspace));
        infos.sort_by_key(|info| info.created_at);
        infos
    }

    /// The newest events of a workspace or of one of its sandboxes, ended ones included; oldest first.
    pub fn newest_events(
        &self,
        workspace: &str,
        sandbox: Option<&SandboxId>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.newest_events(workspace, sandbox.map(SandboxId::as_str), limit)
    }

    /// The events that follow the one with this number.
    pub fn events_after(
        &self,
        workspace: &str,
        sandbox: Option<&SandboxId>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.events_after(workspace, sandbox.map(SandboxId::as_str), after, limit)
    }

    /// The sandbox that one which has ended was forked from, as long as that is remembered.
    pub fn parent_of_ended(&self, id: &SandboxId) -> Result<Option<SandboxId>, StoreError> {
        Ok(self.store.parent_of(id.as_str())?.and_then(|parent| SandboxId::parse(&parent)))
    }

    /// What a sandbox was that has ended, and why it did, as long as that is remembered.
    pub fn ended(&self, id: &SandboxId) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        self.store.ended_sandbox(id.as_str())
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    pub fn is_closing(&self) -> bool {
        self.registry().closing
    }

    /// Writes down what happened to a sandbox, and tells those who listen.
    pub fn record(
        &self,
        id: &SandboxId,
        workspace: &str,
        kind: &str,
        detail: serde_json::Value,
    ) -> Result<(), StoreError> {
        let event = self.store.add_event(id.as_str(), workspace, kind, detail)?;
        // Nobody need be listening.
        let _ = self.events.send(event);
        Ok(())
    }

    /// Events of all workspaces from now on; the listener picks its own.
    pub fn subscribe_events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// A sandbox of this workspace. One of another workspace is as good as none.
    pub async fn find(&self, workspace: &str, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.wait_until(|unsettled| !unsettled.contains(id)).await;
        self.get(id).filter(|sandbox| sandbox.info.workspace == workspace)
    }

    /// Waits until it is known of every sandbox that a dead engine left whether it was taken over.
    pub async fn settled(&self) {
        self.wait_until(BTreeSet::is_empty).await;
    }

    async fn wait_until(&self, known: impl FnMut(&BTreeSet<SandboxId>) -> bool) {
        // The sender is ours, so it cannot be gone.
        let _ = self.unsettled.subscribe().wait_for(known).await;
    }

    pub(crate) fn unsettle(&self, id: &SandboxId) {
        self.unsettled.send_if_modified(|unsettled| unsettled.insert(id.clone()));
    }

    pub(crate) fn settle(&self, id: &SandboxId) {
        self.unsettled.send_if_modified(|unsettled| unsettled.remove(id));
    }

    /// Ends every sandbox and standby. Nothing can be created afterwards.
    pub async fn close(&self) {
        self.settled().await;
        let sandboxes: Vec<_> = {
            let mut registry = self.registry();
            registry.closing = true;
            registry.living.values().cloned().collect()
        };
        let shelves: Vec<_> = self.shelves().drain().map(|(_, shelf)| shelf).collect();
        let mut ending = tokio::task::JoinSet::new();
        for sandbox in sandboxes {
            ending.spawn(async move {
                // One that refuses to end has said so in the log.
                let _ = sandbox.end(EndReason::EngineClosed).await;
            });
        }
        for shelf in shelves {
            ending.spawn(async move { shelf.close().await });
        }
        ending.join_all().await;
    }

    /// Lets go of the sandboxes without ending them: persistent ones hibernate, the others are found as they are by
    /// the next engine that takes over, and each ends by itself when its time is over. Standbys are ended.
    pub async fn detach(&self) {
        self.settled().await;
        let sandboxes: Vec<_> = {
            let mut registry = self.registry();
            registry.closing = true;
            registry.living.values().cloned().collect()
        };
        for sandbox in sandboxes {
            if sandbox.lifetime.borrow().persistent
                && let Err(error) = sandbox.hibernate().await
            {
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "it did not hibernate and is left running");
            }
            sandbox.let_go().await;
        }
        let shelves: Vec<_> = self.shelves().drain().map(|(_, shelf)| shelf).collect();
        for shelf in shelves {
            shelf.close().await;
        }
    }

    /// Ends the standbys of a template.
    pub(crate) async fn drop_shelves(&self, image: &ContentId) {
        let dropped: Vec<_> = self.shelves().extract_if(|shape, _| shape.image == *image).collect();
        for (_, shelf) in dropped {
            shelf.close().await;
        }
    }

    /// Makes the template's standbys now and waits until they are ready.
    pub async fn warm_up(self: &Arc<Self>, template: &str) -> Result<(), crate::TemplateError> {
        let template = self.template(DEFAULT_WORKSPACE, template, None, None).await?;
        if let Some(shelf) = self.shelf(&template) {
            shelf.filled().await;
        }
        Ok(())
    }

    /// The shelf of a template, if standbys are wanted at all.
    pub(crate) fn shelf(&self, template: &Arc<Template>) -> Option<Arc<Shelf>> {
        if self.config.standbys == 0 || self.registry().closing {
            return None;
        }
        let mut shelves = self.shelves();
        let shelf = shelves
            .entry(template.shape.clone())
            .or_insert_with(|| Shelf::new(template.clone(), self.maker.clone(), &self.config));
        Some(shelf.clone())
    }

    /// All shelves, that of this shape last: its standbys may be about to be claimed.
    pub(crate) fn shelves_for(&self, shape: &Shape) -> Vec<Arc<Shelf>> {
        let shelves = self.shelves();
        let (own, others): (Vec<_>, Vec<_>) = shelves.iter().partition(|(of, _)| *of == shape);
        others.into_iter().chain(own).map(|(_, shelf)| shelf.clone()).collect()
    }

    /// Enters a sandbox; false when the engine is closing.
    pub(crate) fn register(&self, sandbox: Arc<Sandbox>) -> bool {
        let mut registry = self.registry();
        if !registry.closing {
            registry.living.insert(sandbox.id().clone(), sandbox);
        }
        !registry.closing
    }

    pub(crate) fn unregister(&self, id: &SandboxId) {
        self.registry().living.remove(id);
    }

    /// Keeps a snapshot from being swept while something is being made of it.
    pub(crate) fn hold_snapshot(self: &Arc<Self>, id: &SnapshotId) -> HeldSnapshot {
        self.held_snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(id.clone());
        HeldSnapshot { engine: self.clone(), id: id.clone() }
    }

    pub(crate) fn snapshots_in_making(&self) -> BTreeSet<SnapshotId> {
        self.held_snapshots.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelves(&self) -> MutexGuard<'_, HashMap<Shape, Arc<Shelf>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
