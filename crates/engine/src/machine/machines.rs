//! The templates and standbys of one engine.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sandling_image::{BuildOptions, ContentId, Image, ImageStore, LoadError, Recipe, RecipeError};
use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::Hardware;

use super::bake::{self, OnStep, Step};
use super::factory::MachineFactory;
use super::names::{shown_name, stored_name};
use super::standby::{StandbyPool, StandbySettings};
use super::template::{Shape, Template, TemplateError, TemplateSummary, damaged, summary};
use crate::model::DEFAULT_WORKSPACE;
use crate::process_cache::Fallback;

/// What becomes a [`Machines`].
pub(crate) struct MachinesConfig {
    pub(crate) accelerator: Accelerator,
    pub(crate) images: ImageStore,
    pub(crate) factory: MachineFactory,
    pub(crate) standbys: StandbySettings,
}

pub struct Machines {
    accelerator: Accelerator,
    pub(crate) images: Arc<ImageStore>,
    pub(crate) factory: Arc<MachineFactory>,
    standbys: StandbySettings,
    templates: tokio::sync::Mutex<HashMap<Shape, Arc<Template>>>,
    pools: Mutex<HashMap<Shape, Arc<StandbyPool>>>,
    closed: AtomicBool,
}

impl Machines {
    pub(crate) fn new(config: MachinesConfig) -> Self {
        let MachinesConfig { accelerator, images, factory, standbys } = config;
        Self {
            accelerator,
            images: Arc::new(images),
            factory: Arc::new(factory),
            standbys,
            templates: Default::default(),
            pools: Default::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// A template that is ready to be restored, in its own size or another. It must have been built. Another size is
    /// baked when it is first used.
    pub(crate) async fn template(
        &self,
        workspace: &str,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
    ) -> Result<Arc<Template>, TemplateError> {
        let (images, stored) = (self.images.clone(), stored_name(workspace, name)?);
        let loading = tokio::task::spawn_blocking(move || images.load(&stored));
        let image = match loading.await.map_err(|_| TemplateError::CutOff)? {
            // A name that is neither built nor built-in is unknown, not merely unbuilt.
            Err(LoadError::NotBuilt { .. }) if sandling_image::resolve(name).is_err() => {
                return Err(RecipeError::Unknown { name: name.to_owned(), known: Vec::new() }.into());
            }
            loaded => loaded?,
        };
        self.prepared(image, name, vcpus, memory_mib, &|_| {}).await
    }

    async fn prepared(
        &self,
        image: Image,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
        on_step: OnStep<'_>,
    ) -> Result<Arc<Template>, TemplateError> {
        let recipe = &image.manifest.recipe;
        let hardware = self.hardware(vcpus.unwrap_or(recipe.vcpus), memory_mib.unwrap_or(recipe.memory_mib));
        let shape = Shape { image: image.id.clone(), key: bake::key(&hardware) };
        // Held while baking, so that a template is not baked twice at once.
        let mut templates = self.templates.lock().await;
        if let Some(template) = templates.get(&shape)
            && template.baked.is_whole()
        {
            return Ok(template.clone());
        }
        let baked = bake::ensure(&self.factory, &image, &hardware, on_step)
            .await
            .map_err(|source| TemplateError::Bake { name: name.to_owned(), source })?;
        let cached = self.factory.process_cache.find(baked.dir()).map(OnceLock::from).unwrap_or_default();
        let (name, caching) = (name.to_owned(), Default::default());
        let template = Arc::new(Template { name, shape: shape.clone(), image, hardware, baked, cached, caching });
        templates.insert(shape, template.clone());
        Ok(template)
    }

    /// The hardware of a machine of this size on this host.
    pub(crate) fn hardware(&self, vcpus: u32, memory_mib: u32) -> Hardware {
        let accelerator = self.accelerator;
        Hardware { accelerator, cpu_model: accelerator.default_cpu_model().to_owned(), vcpus, memory_mib }
    }

    /// Builds a template's image if its inputs changed, and bakes it. The recipe's name is a [`stored_name`].
    pub async fn build_template(
        &self,
        recipe: Recipe,
        options: BuildOptions,
        on_step: impl Fn(Step) + Send + Sync + 'static,
    ) -> Result<TemplateSummary, TemplateError> {
        let on_step = Arc::new(on_step);
        let (images, steps) = (self.images.clone(), on_step.clone());
        let name = recipe.name.to_string();
        let building = tokio::task::spawn_blocking(move || {
            images.ensure(&recipe, &options, &mut |progress| {
                let progress = progress.clone();
                let text = match progress.detail.as_str() {
                    "" => progress.step.title().to_owned(),
                    detail => format!("{}: {detail}", progress.step.title()),
                };
                steps(Step { text, progress: progress.total.map(|total| (progress.done, total)) });
            })
        });
        let image = building.await.map_err(|_| TemplateError::CutOff)??;
        let built = summary(&image.manifest.recipe, Some(&image));
        let template = self.prepared(image, &name, None, None, &*on_step).await?;
        on_step(Step { text: "caching a translated process".to_owned(), progress: None });
        self.factory.ensure_cached_process(&template).await;
        Ok(built)
    }

    /// The templates of a workspace that are built.
    pub(crate) fn built(&self, workspace: &str) -> Result<Vec<TemplateSummary>, TemplateError> {
        let mut built = Vec::new();
        for found in self.images.list()? {
            let Some(name) = shown_name(workspace, found.name.as_str()) else { continue };
            let found = match found.image {
                Ok(image) => summary(&image.manifest.recipe, Some(&image)),
                Err(error) => damaged(&error),
            };
            built.push(TemplateSummary { name, ..found });
        }
        Ok(built)
    }

    /// What a built template is made of.
    pub fn inspect_template(&self, workspace: &str, name: &str) -> Result<Image, TemplateError> {
        Ok(self.images.load(&stored_name(workspace, name)?)?)
    }

    /// The image of a built template.
    pub(crate) fn image_of(&self, workspace: &str, name: &str) -> Result<ContentId, TemplateError> {
        Ok(self.images.inspect(&stored_name(workspace, name)?)?.id)
    }

    /// Removes a built template and ends its standbys. Images that are `in_use` stay; `None` if that is not known.
    pub(crate) async fn remove_template(
        &self,
        workspace: &str,
        name: &str,
        image: &ContentId,
        in_use: Option<BTreeSet<ContentId>>,
    ) -> Result<(), TemplateError> {
        let name = stored_name(workspace, name)?;
        let pools: Vec<_> = self.pools().extract_if(|shape, _| shape.image == *image).collect();
        for (_, pool) in pools {
            pool.close().await;
        }
        self.templates.lock().await.retain(|shape, _| shape.image != *image);
        let images = self.images.clone();
        let removing = tokio::task::spawn_blocking(move || images.remove(&name, in_use.as_ref(), &mut |_| {}));
        Ok(removing.await.map_err(|_| TemplateError::CutOff)??)
    }

    /// Makes the standbys of a template now, and waits until they are ready.
    pub async fn warm_up(&self, template: &str) -> Result<(), TemplateError> {
        let template = self.template(DEFAULT_WORKSPACE, template, None, None).await?;
        if let Some(pool) = self.pool(&template) {
            pool.filled().await;
        }
        Ok(())
    }

    /// The standbys of a template, unless standbys are off or the engine closes.
    pub(crate) fn pool(&self, template: &Arc<Template>) -> Option<Arc<StandbyPool>> {
        let mut pools = self.pools();
        if self.standbys.count == 0 || self.closed.load(Ordering::SeqCst) {
            return None;
        }
        let make = || StandbyPool::new(template.clone(), self.factory.clone(), self.standbys);
        Some(pools.entry(template.shape.clone()).or_insert_with(make).clone())
    }

    /// All pools, with the one of this shape last: its standbys may be claimed next.
    pub(crate) fn pools_for(&self, shape: &Shape) -> Vec<Arc<StandbyPool>> {
        let pools = self.pools();
        let (own, others): (Vec<_>, Vec<_>) = pools.iter().partition(|(of, _)| *of == shape);
        others.into_iter().chain(own).map(|(_, pool)| pool.clone()).collect()
    }

    /// How often machines were restored from device state instead of their cached process, by reason.
    pub fn process_cache_fallbacks(&self) -> impl Iterator<Item = (Fallback, u64)> {
        self.factory.process_cache.fallbacks()
    }

    /// Ends all standbys and makes no more.
    pub(crate) async fn close(&self) {
        let pools: Vec<_> = {
            let mut pools = self.pools();
            self.closed.store(true, Ordering::SeqCst);
            pools.drain().map(|(_, pool)| pool).collect()
        };
        let mut closing = tokio::task::JoinSet::new();
        for pool in pools {
            closing.spawn(async move { pool.close().await });
        }
        closing.join_all().await;
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<Shape, Arc<StandbyPool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
