//! Templates as the engine sees them: an image, and for each shape of hardware a baked, warm snapshot of it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sandling_image::{
    BadTemplateName, BuildError, BuildOptions, ContentId, Image, LoadError, Recipe, RecipeError, TemplateName,
};
use sandling_protocol::Language;
use sandling_vmm::machine::{Hardware, Layer};
use sandling_vmm::memory::Memory;
use serde::Serialize;

use crate::bake::{self, BakeError, Baked};
use crate::create::DEFAULT_WORKSPACE;
use crate::engine::Engine;
use crate::made::{DISK, Maker, Source};
use crate::process_cache::StoredProcess;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error(transparent)]
    Name(#[from] RecipeError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("template `{name}` could not be baked")]
    Bake { name: String, source: BakeError },
    #[error("template `{0}` is in use by a sandbox; end it first")]
    InUse(String),
    #[error("there is a template `{0}` already; choose another name or remove it first")]
    Exists(String),
    #[error(transparent)]
    Store(StoreError),
    #[error("the work was cut off")]
    CutOff,
}

/// Which snapshot of which template: sandboxes of one shape share memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) image: ContentId,
    pub(crate) key: String,
}

/// A template that is ready to be restored.
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) image: Image,
    pub(crate) hardware: Hardware,
    pub(crate) baked: Baked,
    /// The process that its machines are resumed from, once there is one.
    pub(crate) cached: OnceLock<StoredProcess>,
    /// Held while the process is made.
    pub(crate) caching: tokio::sync::Mutex<()>,
}

/// One step of work that takes a while, for whoever waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub text: String,
    /// How far, of how much, where that is known.
    pub progress: Option<(u64, u64)>,
}

pub(crate) type OnStep<'a> = &'a (dyn Fn(Step) + Send + Sync);

/// A template for a list.
#[derive(Debug, Clone, Serialize)]
pub struct TemplateSummary {
    pub name: String,
    pub description: String,
    pub packages: BTreeSet<String>,
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
    /// Its image, its age and its size, once it is built.
    pub image: Option<String>,
    pub created_at: Option<Timestamp>,
    pub size_bytes: u64,
    /// Why it cannot be used although it was built.
    pub damage: Option<String>,
    /// It comes with Sandling and belongs to nobody.
    pub built_in: bool,
}

impl Template {
    pub(crate) fn disk_mib(&self) -> u32 {
        self.image.manifest.recipe.disk_mib
    }

    pub(crate) fn pids(&self) -> u32 {
        self.image.manifest.recipe.pids
    }

    pub(crate) fn warm_languages(&self) -> Vec<Language> {
        self.image.manifest.recipe.warm.iter().map(|warm| warm.language).collect()
    }

    /// What a machine that is restored from it needs.
    pub(crate) fn source(&self, maker: &Maker) -> Source {
        let cold = self.cold_source(maker);
        let cached = self.cached.get().filter(|process| process.is_whole());
        Source { cached: cached.map(|process| process.clone().of_template(cold.memory.clone())), ..cold }
    }

    pub(crate) fn cold_source(&self, maker: &Maker) -> Source {
        Source {
            hardware: self.hardware.clone(),
            memory: Memory::base(self.baked.memory(), maker.library.clone()),
            state: self.baked.state(),
            layers: vec![root_layer(&self.image), Layer { name: self.baked.layer_name(), path: self.baked.disk() }],
            overlay: self.baked.overlay(),
            disk_mib: self.disk_mib(),
            plugs: Vec::new(),
            volume_mib: 0,
            disk_name: DISK.to_owned(),
            cached: None,
        }
    }
}

pub(crate) fn root_layer(image: &Image) -> Layer {
    Layer { name: format!("root-{}", image.manifest.root.id), path: image.root_img() }
}

/// What an alias stands for, to be told to whoever used it.
pub fn alias_note(name: &str) -> Option<&'static str> {
    sandling_image::resolve(name).ok().and_then(|resolved| resolved.alias_note)
}

/// Names of templates that belong to another workspace than the default one begin with this and the workspace's.
const FOREIGN: &str = "w.";

/// The name under which a workspace's template is stored: a built-in one's own, or that which its alias stands for;
/// one that somebody made has its workspace in front, so that two workspaces can use one name and neither notices.
pub fn stored_name(workspace: &str, name: &str) -> Result<TemplateName, RecipeError> {
    if let Ok(built_in) = sandling_image::resolve(name) {
        return Ok(built_in.recipe.name);
    }
    if name.starts_with(FOREIGN) {
        return Err(BadTemplateName { name: name.to_owned() }.into());
    }
    // Before anything is put in front of it: then even no name at all would pass for one.
    let own: TemplateName = name.parse()?;
    if workspace == DEFAULT_WORKSPACE { Ok(own) } else { Ok(format!("{FOREIGN}{workspace}.{own}").parse()?) }
}

/// What a stored name is called in its workspace; nothing if it is another's.
fn shown_name(workspace: &str, stored: &str) -> Option<String> {
    match stored.strip_prefix(FOREIGN) {
        None => (workspace == DEFAULT_WORKSPACE || sandling_image::resolve(stored).is_ok()).then(|| stored.to_owned()),
        Some(rest) => rest.strip_prefix(workspace)?.strip_prefix('.').map(str::to_owned),
    }
}

impl Engine {
    /// A template ready to be restored, of its own size or another. It must have been built; another size than its
    /// own is baked when it is first asked for.
    pub(crate) async fn template(
        self: &Arc<Self>,
        workspace: &str,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
    ) -> Result<Arc<Template>, TemplateError> {
        let image = self.load(workspace, name).await?;
        self.prepared(image, name, vcpus, memory_mib, &|_| {}).await
    }

    async fn prepared(
        self: &Arc<Self>,
        image: Image,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
        on_step: OnStep<'_>,
    ) -> Result<Arc<Template>, TemplateError> {
        let hardware = self.hardware(&image.manifest.recipe, vcpus, memory_mib);
        let shape = Shape { image: image.id.clone(), key: bake::key(&hardware) };
        // Held while baking: whoever wants the same template waits for it rather than bakes it twice.
        let mut templates = self.templates.lock().await;
        if let Some(template) = templates.get(&shape)
            && template.baked.is_whole()
        {
            return Ok(template.clone());
        }
        let baked = bake::ensure(self, &image, &hardware, on_step)
            .await
            .map_err(|source| TemplateError::Bake { name: name.to_owned(), source })?;
        let name = name.to_owned();
        let cached = self.maker.process_cache.find(baked.dir()).map(OnceLock::from).unwrap_or_default();
        let template = Arc::new(Template {
            name,
            shape: shape.clone(),
            image,
            hardware,
            baked,
            cached,
            caching: Default::default(),
        });
        templates.insert(shape, template.clone());
        Ok(template)
    }

    async fn load(self: &Arc<Self>, workspace: &str, name: &str) -> Result<Image, TemplateError> {
        let (engine, wanted) = (self.clone(), stored_name(workspace, name)?);
        let loading = tokio::task::spawn_blocking(move || engine.images.load(&wanted));
        match loading.await.map_err(|_| TemplateError::CutOff)? {
            // A name that is neither built nor known is unknown, not merely unbuilt.
            Err(LoadError::NotBuilt { .. }) if sandling_image::resolve(name).is_err() => {
                Err(self.unknown(workspace, name).into())
            }
            loaded => Ok(loaded?),
        }
    }

    fn unknown(&self, workspace: &str, name: &str) -> RecipeError {
        let listed = self.list_templates(workspace).unwrap_or_default();
        RecipeError::Unknown {
            name: name.to_owned(),
            known: listed.into_iter().map(|template| template.name).collect(),
        }
    }

    pub(crate) fn hardware(&self, recipe: &Recipe, vcpus: Option<u32>, memory_mib: Option<u32>) -> Hardware {
        self.hardware_of(vcpus.unwrap_or(recipe.vcpus), memory_mib.unwrap_or(recipe.memory_mib))
    }

    /// What a machine of this size runs on here.
    pub(crate) fn hardware_of(&self, vcpus: u32, memory_mib: u32) -> Hardware {
        let accelerator = self.probe.accelerator;
        Hardware { accelerator, cpu_model: accelerator.default_cpu_model().to_owned(), vcpus, memory_mib }
    }

    /// Builds a template's image if its inputs changed, and bakes it. The recipe's name is a [`stored_name`].
    pub async fn build_template(
        self: &Arc<Self>,
        recipe: Recipe,
        options: BuildOptions,
        on_step: impl Fn(Step) + Send + Sync + 'static,
    ) -> Result<TemplateSummary, TemplateError> {
        let on_step = Arc::new(on_step);
        let (engine, steps) = (self.clone(), on_step.clone());
        let name = recipe.name.to_string();
        let building = tokio::task::spawn_blocking(move || {
            engine.images.ensure(&recipe, &options, &mut |progress| {
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
        self.maker.ensure_cached_process(&template).await;
        Ok(built)
    }

    /// Templates of a workspace that are built, and the built-in ones that could be.
    pub fn list_templates(&self, workspace: &str) -> Result<Vec<TemplateSummary>, TemplateError> {
        let mut listed = Vec::new();
        for found in self.images.list()? {
            let Some(name) = shown_name(workspace, found.name.as_str()) else { continue };
            let found = match found.image {
                Ok(image) => summary(&image.manifest.recipe, Some(&image)),
                Err(error) => damaged(&error),
            };
            listed.push(TemplateSummary { name, ..found });
        }
        listed.extend(self.snapshot_templates(workspace)?);
        for recipe in sandling_image::builtin_recipes() {
            if !listed.iter().any(|template| template.name == recipe.name.as_str()) {
                listed.push(summary(&recipe, None));
            }
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// What a built template is made of.
    pub fn inspect_template(&self, workspace: &str, name: &str) -> Result<Image, TemplateError> {
        Ok(self.images.load(&stored_name(workspace, name)?)?)
    }

    /// Removes a template, unless a sandbox of this engine stands on it.
    pub async fn remove_template(self: &Arc<Self>, workspace: &str, shown: &str) -> Result<(), TemplateError> {
        if !self.remove_snapshot_template(workspace, shown).await? {
            self.remove_image(workspace, shown).await?;
        }
        // What comes under that name next is another template.
        Ok(self.remove_network_default(workspace, Some(shown))?)
    }

    async fn remove_image(self: &Arc<Self>, workspace: &str, shown: &str) -> Result<(), TemplateError> {
        let name = stored_name(workspace, shown)?;
        let image = self.images.inspect(&name)?.id;
        if self.list().iter().any(|info| info.image == image.as_str()) {
            return Err(TemplateError::InUse(shown.to_owned()));
        }
        self.drop_shelves(&image).await;
        let in_use = self.images_in_use()?;
        self.templates.lock().await.retain(|shape, _| shape.image != image);
        let engine = self.clone();
        let removing = tokio::task::spawn_blocking(move || engine.images.remove(&name, in_use.as_ref(), &mut |_| {}));
        Ok(removing.await.map_err(|_| TemplateError::CutOff)??)
    }

    /// Images that sandboxes and snapshots of this home still stand on; nothing if the row of one cannot be read.
    fn images_in_use(&self) -> Result<Option<BTreeSet<ContentId>>, StoreError> {
        let (Some(living), Some(saved)) = (self.store.living_sandboxes()?.complete(), self.store.all_snapshots()?)
        else {
            return Ok(None);
        };
        let of_sandboxes = living.iter().filter_map(|row| row.info.image.parse().ok());
        Ok(Some(of_sandboxes.chain(saved.into_iter().map(|(snapshot, _)| snapshot.image)).collect()))
    }
}

fn summary(recipe: &Recipe, image: Option<&Image>) -> TemplateSummary {
    TemplateSummary {
        name: recipe.name.to_string(),
        description: recipe.description.clone(),
        packages: recipe.packages.clone(),
        vcpus: recipe.vcpus,
        memory_mib: recipe.memory_mib,
        disk_mib: recipe.disk_mib,
        image: image.map(|image| image.id.to_string()),
        created_at: image.map(|image| image.manifest.created),
        size_bytes: image.map_or(0, on_disk),
        damage: None,
        built_in: sandling_image::resolve(recipe.name.as_str()).is_ok(),
    }
}

/// What its files really take; the root disk is mostly holes.
fn on_disk(image: &Image) -> u64 {
    let blocks = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    blocks(image.root_img()) + blocks(image.kernel()) + blocks(image.initrd())
}

fn damaged(error: &LoadError) -> TemplateSummary {
    TemplateSummary {
        name: String::new(),
        description: String::new(),
        packages: BTreeSet::new(),
        vcpus: 0,
        memory_mib: 0,
        disk_mib: 0,
        image: None,
        created_at: None,
        size_bytes: 0,
        damage: Some(error.to_string()),
        built_in: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_in_every_workspace_or_in_none() {
        for name in ["", ".", "..", "-x", ".hidden", "a/b", "w.other.mine"] {
            for workspace in [DEFAULT_WORKSPACE, "team"] {
                assert!(stored_name(workspace, name).is_err(), "{workspace}: {name:?}");
            }
        }
        assert_eq!(stored_name("team", "mine").unwrap().as_str(), "w.team.mine");
        assert_eq!(stored_name("team", "ubuntu-24.04").unwrap().as_str(), "base");
        assert_eq!(shown_name("team", "w.team.mine").as_deref(), Some("mine"));
        assert_eq!(shown_name("other", "w.team.mine"), None);
    }
}
