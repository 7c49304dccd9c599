//! The templates and standbys of one engine.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sandling_image::{
    BuildError, BuildOptions, ContentId, Image, ImageStore, LoadError, OciImage, Recipe, RecipeError, Report,
    TemplateName,
};
use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::Hardware;

use super::baked;
use super::bakes::{Bakes, OnStep, SizedImage};
use super::factory::MachineFactory;
use super::names::{own_name, shown_name, stored_name, workspace_of};
use super::standby::{StandbyPool, StandbySettings};
use super::standby_demand::Standbys;
use super::step::Step;
use super::stored::{EvictableTemplate, StoredBake};
use super::template::{Shape, Template, TemplateError, TemplateSummary, damaged, summary};
use crate::model::DEFAULT_WORKSPACE;
use crate::process_cache::Fallback;

/// Templates that were used so recently are not evicted, because a create may be about to use one.
const RECENTLY: Duration = Duration::from_secs(60);

pub struct Machines {
    accelerator: Accelerator,
    pub(crate) images: Arc<ImageStore>,
    pub(crate) factory: Arc<MachineFactory>,
    standbys: StandbySettings,
    pub(super) bakes: Bakes,
    pools: Mutex<HashMap<Shape, Arc<StandbyPool>>>,
    closed: AtomicBool,
    standbys_held: Arc<AtomicBool>,
}

impl Machines {
    pub(crate) fn new(
        accelerator: Accelerator,
        images: ImageStore,
        factory: MachineFactory,
        standbys: StandbySettings,
    ) -> Self {
        let factory = Arc::new(factory);
        Self {
            accelerator,
            images: Arc::new(images),
            bakes: Bakes::new(factory.clone()),
            factory,
            standbys,
            pools: Default::default(),
            closed: AtomicBool::new(false),
            standbys_held: Arc::default(),
        }
    }

    /// The stored name of a template. One that the workspace made is preferred to a built-in one of the same name, which
    /// may have been added later.
    fn stored_name(&self, workspace: &str, name: &str) -> Result<TemplateName, RecipeError> {
        match own_name(workspace, name) {
            Ok(own) if self.images.has_name(&own) => Ok(own),
            _ => stored_name(workspace, name),
        }
    }

    /// Whether the workspace made a template that has the name of a built-in one.
    pub(crate) fn has_own(&self, workspace: &str, built_in: &str) -> bool {
        self.stored_name(workspace, built_in) != stored_name(workspace, built_in)
    }

    /// A template in its own size or another. It must have been built, but it need not be baked.
    pub(crate) async fn sized(
        &self,
        workspace: &str,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
    ) -> Result<SizedImage, TemplateError> {
        let (images, stored) = (self.images.clone(), self.stored_name(workspace, name)?);
        let loading = tokio::task::spawn_blocking(move || {
            images.mark_used(&stored);
            images.load(&stored)
        });
        let image = match loading.await.map_err(|_| TemplateError::CutOff)? {
            // A name that is neither built nor built-in is unknown, not merely unbuilt.
            Err(LoadError::NotBuilt { .. }) if sandling_image::resolve(name).is_err() => {
                return Err(RecipeError::Unknown { name: name.to_owned(), known: Vec::new() }.into());
            }
            loaded => loaded?,
        };
        let recipe = &image.manifest.recipe;
        let hardware = self.hardware(vcpus.unwrap_or(recipe.vcpus), memory_mib.unwrap_or(recipe.memory_mib));
        Ok(SizedImage::new(name, image, hardware))
    }

    /// A template that is ready to be restored, if it is baked in this size.
    pub(crate) fn find_baked(&self, sized: &SizedImage) -> Result<Option<Arc<Template>>, TemplateError> {
        self.bakes.find(sized).map_err(|source| TemplateError::Bake { name: sized.name.clone(), source })
    }

    /// A template that is ready to be restored. If nobody has used this size before, it is baked now, in the turn of
    /// this workspace.
    pub(crate) async fn baked(
        &self,
        sized: &SizedImage,
        workspace: &str,
        on_step: OnStep,
    ) -> Result<Arc<Template>, TemplateError> {
        let baked = self.bakes.ensure(sized, workspace, on_step).await;
        baked.map_err(|source| TemplateError::Bake { name: sized.name.clone(), source })
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
        self.build_with(recipe, on_step, move |images, recipe, report| images.ensure(recipe, &options, report)).await
    }

    /// Does the same for a recipe with an OCI image, whose root disk `make_root` writes.
    pub async fn build_oci_template(
        &self,
        recipe: Recipe,
        make_root: impl Fn(&Path, Report<'_>) -> Result<(), BuildError> + Send + 'static,
        on_step: impl Fn(Step) + Send + Sync + 'static,
    ) -> Result<TemplateSummary, TemplateError> {
        self.build_with(recipe, on_step, move |images, recipe, report| images.ensure_oci(recipe, &make_root, report))
            .await
    }

    async fn build_with(
        &self,
        recipe: Recipe,
        on_step: impl Fn(Step) + Send + Sync + 'static,
        build: impl FnOnce(&ImageStore, &Recipe, Report<'_>) -> Result<Image, BuildError> + Send + 'static,
    ) -> Result<TemplateSummary, TemplateError> {
        let on_step = Arc::new(on_step);
        let (images, steps) = (self.images.clone(), on_step.clone());
        let name = recipe.name.to_string();
        let building =
            tokio::task::spawn_blocking(move || build(&images, &recipe, &mut |progress| steps(progress.into())));
        let image = building.await.map_err(|_| TemplateError::CutOff)??;
        self.bakes.stored.changed();
        let built = summary(&image.manifest.recipe, Some(&image));
        let hardware = self.hardware(image.manifest.recipe.vcpus, image.manifest.recipe.memory_mib);
        let workspace = workspace_of(&name).to_owned();
        let template = self.baked(&SizedImage::new(&name, image, hardware), &workspace, on_step.clone()).await?;
        self.factory.ensure_cached_process(&template, &*on_step).await;
        Ok(built)
    }

    /// Bakes a built template in its own size, unless it is baked.
    pub(crate) async fn bake_template(
        &self,
        workspace: &str,
        name: &str,
        on_step: OnStep,
    ) -> Result<(), TemplateError> {
        let sized = self.sized(workspace, name, None, None).await?;
        self.baked(&sized, workspace, on_step).await.map(drop)
    }

    /// The disk space of templates that a workspace built, and of sizes that it was the first to use.
    pub fn stored_mib(&self, workspace: &str) -> u64 {
        self.bakes.stored.mib(&self.images, workspace)
    }

    /// Templates of OCI images of this workspace, except those in use, just used, or being baked.
    pub(crate) fn evictable_templates(&self, workspace: &str, in_use: &BTreeSet<ContentId>) -> Vec<EvictableTemplate> {
        let mut found = self.bakes.stored.image_templates(&self.images, workspace);
        let now = Timestamp::now();
        found.retain(|template| {
            let unused_for = now.duration_since(template.used_at).unsigned_abs();
            !in_use.contains(&template.image) && !self.bakes.is_baking(&template.image) && unused_for > RECENTLY
        });
        found
    }

    /// Bakes that count against this workspace, of other sizes than their templates', except those in use.
    pub(crate) fn evictable_bakes(&self, workspace: &str, in_use: &BTreeSet<(String, String)>) -> Vec<StoredBake> {
        let own_size = |recipe: &Recipe| baked::key(&self.hardware(recipe.vcpus, recipe.memory_mib));
        let mut found = self.bakes.stored.other_sizes(&self.images, workspace, own_size);
        found.retain(|bake| !in_use.contains(&bake.name()));
        found
    }

    /// Removes a bake and its standbys, unless somebody is about to use it. Returns how many bytes that freed.
    pub(crate) async fn evict_bake(&self, bake: &StoredBake) -> u64 {
        let pool = self.pools().remove(&bake.shape);
        if let Some(pool) = pool {
            pool.close().await;
        }
        if self.bakes.remove(&bake.shape, &bake.dir) { bake.bytes } else { 0 }
    }

    /// Notes that a template was used, so that it is not evicted.
    pub fn mark_used(&self, workspace: &str, name: &str) {
        if let Ok(stored) = self.stored_name(workspace, name) {
            self.images.mark_used(&stored);
        }
    }

    /// When the image of a template was last used. `None` for a template that was made from steps or a snapshot.
    pub fn used_at(&self, workspace: &str, name: &str) -> Option<Timestamp> {
        let used_at = self.images.used_at(&self.stored_name(workspace, name).ok()?)?;
        Timestamp::try_from(used_at).ok()
    }

    /// The templates of a workspace that are built.
    pub(crate) fn built(&self, workspace: &str) -> Result<Vec<TemplateSummary>, TemplateError> {
        let mut built = Vec::new();
        for found in self.images.list()? {
            let Some(name) = shown_name(workspace, found.name.as_str()) else { continue };
            let found = match found.image {
                Ok(image) => {
                    // By the name in the store: that of the recipe says nothing about whose it is.
                    let built_in = sandling_image::resolve(found.name.as_str()).is_ok();
                    TemplateSummary { built_in, ..summary(&image.manifest.recipe, Some(&image)) }
                }
                Err(error) => damaged(&error),
            };
            built.push(TemplateSummary { name, ..found });
        }
        Ok(built)
    }

    /// What a built template is made of.
    pub fn inspect_template(&self, workspace: &str, name: &str) -> Result<Image, TemplateError> {
        Ok(self.images.load(&self.stored_name(workspace, name)?)?)
    }

    /// The OCI image that a template is made of, if it is made of one and built.
    pub fn oci_image(&self, workspace: &str, name: &str) -> Option<OciImage> {
        if sandling_image::resolve(name).is_ok() && !self.has_own(workspace, name) {
            return None;
        }
        self.images.inspect(&self.stored_name(workspace, name).ok()?).ok()?.manifest.recipe.oci
    }

    /// Whether the root disk of this recipe exists, perhaps for another template.
    pub fn has_root(&self, recipe: &Recipe) -> Result<bool, BuildError> {
        self.images.has_root(recipe)
    }

    /// The image of a built template.
    pub(crate) fn image_of(&self, workspace: &str, name: &str) -> Result<ContentId, TemplateError> {
        Ok(self.images.inspect(&self.stored_name(workspace, name)?)?.id)
    }

    /// Removes a built template and ends its standbys. Images that are `in_use` stay; `None` if that is not known. Returns
    /// how many bytes that freed.
    pub(crate) async fn remove_template(
        &self,
        workspace: &str,
        name: &str,
        image: &ContentId,
        in_use: Option<BTreeSet<ContentId>>,
    ) -> Result<u64, TemplateError> {
        let name = self.stored_name(workspace, name)?;
        let pools: Vec<_> = self.pools().extract_if(|shape, _| shape.image == *image).collect();
        for (_, pool) in pools {
            pool.close().await;
        }
        self.bakes.forget(image);
        let images = self.images.clone();
        let removing = tokio::task::spawn_blocking(move || images.remove(&name, in_use.as_ref(), &mut |_| {}));
        let removed = removing.await.map_err(|_| TemplateError::CutOff);
        self.bakes.stored.changed();
        Ok(removed??)
    }

    /// Makes the standbys of a template now, and waits until they are ready.
    pub async fn warm_up(&self, template: &str) -> Result<(), TemplateError> {
        let sized = self.sized(DEFAULT_WORKSPACE, template, None, None).await?;
        let template = self.baked(&sized, DEFAULT_WORKSPACE, Arc::new(|_| {})).await?;
        if let Some(pool) = self.pool(&template) {
            pool.filled().await;
        }
        Ok(())
    }

    /// The standbys of a template, unless standbys are off or the engine closes.
    pub(crate) fn pool(&self, template: &Arc<Template>) -> Option<Arc<StandbyPool>> {
        let mut pools = self.pools();
        if self.standbys.count == Standbys::NONE || self.closed.load(Ordering::SeqCst) {
            return None;
        }
        let make =
            || StandbyPool::new(template.clone(), self.factory.clone(), self.standbys, self.standbys_held.clone());
        Some(pools.entry(template.shape.clone()).or_insert_with(make).clone())
    }

    /// All pools, with the one of this shape last: its standbys may be claimed next.
    pub(crate) fn pools_for(&self, shape: &Shape) -> Vec<Arc<StandbyPool>> {
        let pools = self.pools();
        let (own, others): (Vec<_>, Vec<_>) = pools.iter().partition(|(of, _)| *of == shape);
        others.into_iter().chain(own).map(|(_, pool)| pool.clone()).collect()
    }

    /// While this is set, there are no standbys. Those that exist end within seconds.
    pub(crate) fn hold_standbys(&self, held: bool) {
        self.standbys_held.store(held, Ordering::SeqCst);
    }

    /// How many standbys are ready, of all templates.
    pub fn standby_count(&self) -> usize {
        self.pools().values().map(|pool| pool.count()).sum()
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
