//! Bakes that are ready and bakes that are being made.
//!
//! A bake takes a minute of a processor and more. It therefore waits for a slot, which workspaces share fairly, and holds
//! no lock: a create of another shape never waits for it. Requests for the same shape share one bake.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sandling_image::{ContentId, Image};
use sandling_vmm::machine::Hardware;
use tokio::sync::watch;

use super::bake;
use super::baked::{self, Baked};
use super::error::BakeError;
use super::factory::MachineFactory;
use super::step::Step;
use super::stored::{StoredTemplates, mark_used};
use super::template::{Shape, Template};
use crate::fair_slots::{FairSlots, Slot};

/// The image of a template in the size that a sandbox is to have, whether it is baked or not.
#[derive(Clone)]
pub(crate) struct SizedImage {
    pub(crate) name: String,
    pub(crate) image: Image,
    pub(crate) hardware: Hardware,
    pub(crate) shape: Shape,
}

impl SizedImage {
    pub(super) fn new(name: &str, image: Image, hardware: Hardware) -> Self {
        let shape = Shape { image: image.id.clone(), key: baked::key(&hardware) };
        Self { name: name.to_owned(), image, hardware, shape }
    }
}

pub(crate) type OnStep = Arc<dyn Fn(Step) + Send + Sync>;
type Outcome = Result<Arc<Template>, Arc<BakeError>>;
/// `None` until the bake has ended.
type Running = watch::Receiver<Option<Outcome>>;

pub(super) struct Bakes {
    factory: Arc<MachineFactory>,
    slots: Arc<FairSlots>,
    pub(super) stored: Arc<StoredTemplates>,
    state: Arc<Mutex<State>>,
    /// Counts the bakes that began.
    begun: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    ready: HashMap<Shape, Arc<Template>>,
    running: HashMap<Shape, Running>,
}

impl Bakes {
    pub(super) fn new(factory: Arc<MachineFactory>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let total = (processors / 2).max(2);
        let slots = FairSlots::new(total, total / 2);
        Self { factory, slots, stored: Arc::default(), state: Arc::default(), begun: watch::Sender::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The template in this size, if it is baked.
    pub(super) fn find(&self, sized: &SizedImage) -> Result<Option<Arc<Template>>, Arc<BakeError>> {
        let mut state = self.state();
        if let Some(template) = state.ready.get(&sized.shape)
            && template.baked.is_whole()
        {
            mark_used(template.baked.dir());
            return Ok(Some(template.clone()));
        }
        let baked = Baked::load(&sized.image.baked_dir(&sized.shape.key))?;
        let template = baked.map(|baked| template(&self.factory, sized, baked));
        if let Some(template) = &template {
            mark_used(template.baked.dir());
            state.ready.insert(sized.shape.clone(), template.clone());
        }
        Ok(template)
    }

    /// Bakes the template in this size, on behalf of a workspace, unless it is baked. If the caller goes away, a bake
    /// that began goes on.
    pub(super) async fn ensure(&self, sized: &SizedImage, workspace: &str, on_step: OnStep) -> Outcome {
        let mut begun = self.begun.subscribe();
        let mut slot = std::pin::pin!(self.slots.acquire(workspace));
        loop {
            if let Some(template) = self.find(sized)? {
                return Ok(template);
            }
            // Before the wait for a slot: another workspace may have got one for the same shape.
            if let Some(running) = self.running(&sized.shape) {
                return outcome(running).await;
            }
            tokio::select! {
                biased;
                slot = &mut slot => return outcome(self.begin(sized, slot, workspace, on_step)).await,
                _ = begun.changed() => {}
            }
        }
    }

    fn running(&self, shape: &Shape) -> Option<Running> {
        self.state().running.get(shape).cloned()
    }

    /// Whether an image is being baked, in any size.
    pub(super) fn is_baking(&self, image: &ContentId) -> bool {
        self.state().running.keys().any(|shape| shape.image == *image)
    }

    /// Starts a bake in a task of its own, or joins the one that another request started meanwhile.
    fn begin(&self, sized: &SizedImage, slot: Slot, workspace: &str, on_step: OnStep) -> Running {
        let mut state = self.state();
        if let Some(running) = state.running.get(&sized.shape) {
            return running.clone();
        }
        let (done, running) = watch::channel(None);
        state.running.insert(sized.shape.clone(), running.clone());
        drop(state);
        let (factory, shared, sized) = (self.factory.clone(), self.state.clone(), sized.clone());
        let (stored, workspace) = (self.stored.clone(), workspace.to_owned());
        tokio::spawn(async move {
            let ended = Ended { shared, shape: sized.shape.clone() };
            let baked = bake::ensure(&factory, &sized.image, &sized.hardware, &workspace, &*on_step).await;
            stored.changed();
            let outcome = baked.map(|baked| template(&factory, &sized, baked)).map_err(Arc::new);
            if let Ok(template) = &outcome {
                // Every sandbox of this size is several times as fast with it, so the first one waits a little longer.
                factory.ensure_cached_process(template, &*on_step).await;
                lock(&ended.shared).ready.insert(sized.shape, template.clone());
            }
            drop(ended);
            let _ = done.send(Some(outcome));
            drop(slot);
        });
        self.begun.send_modify(|count| *count += 1);
        running
    }

    /// Removes a bake, unless somebody is about to use it. Its pool must be closed.
    pub(super) fn remove(&self, shape: &Shape, dir: &Path) -> bool {
        let gone = dir.with_extension(format!("tmp-{}", uuid::Uuid::new_v4().simple()));
        let mut state = self.state();
        let is_free = state.ready.get(shape).is_none_or(|template| Arc::strong_count(template) == 1)
            && !state.running.contains_key(shape);
        let removed = is_free && std::fs::rename(dir, &gone).is_ok();
        if removed {
            state.ready.remove(shape);
        }
        drop(state);
        let _ = std::fs::remove_dir_all(&gone);
        self.stored.changed();
        removed
    }

    /// Forgets the bakes of an image that is being removed.
    pub(super) fn forget(&self, image: &ContentId) {
        self.state().ready.retain(|shape, _| shape.image != *image);
    }
}

/// Marks a bake as ended when it is dropped, even if the bake panicked.
struct Ended {
    shared: Arc<Mutex<State>>,
    shape: Shape,
}

impl Drop for Ended {
    fn drop(&mut self) {
        lock(&self.shared).running.remove(&self.shape);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn template(factory: &MachineFactory, sized: &SizedImage, baked: Baked) -> Arc<Template> {
    let cached = factory.process_cache.find(baked.dir()).map(OnceLock::from).unwrap_or_default();
    let SizedImage { name, image, hardware, shape } = sized.clone();
    Arc::new(Template { name, shape, image, hardware, baked, cached, caching: Default::default() })
}

async fn outcome(mut running: Running) -> Outcome {
    match running.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone()) {
        Some(outcome) => outcome,
        None => Err(Arc::new(BakeError::CutOff)),
    }
}
