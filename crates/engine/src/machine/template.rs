//! Templates: an image, and for each shape of hardware a baked snapshot of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sandling_image::{BuildError, ContentId, Image, LoadError, OciImage, Recipe, RecipeError};
use sandling_protocol::Language;
use sandling_vmm::machine::{Hardware, Layer};
use sandling_vmm::memory::Memory;
use serde::Serialize;

use super::baked::Baked;
use super::error::BakeError;
use super::source::{Source, Start, root_layer};
use crate::model::DISK;
use crate::process_cache::{Fallback, StoredProcess};
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
    Bake { name: String, source: Arc<BakeError> },
    #[error("template `{0}` is in use by a sandbox; end it first")]
    InUse(String),
    #[error("there is a template `{0}` already; choose another name or remove it first")]
    Exists(String),
    #[error(transparent)]
    Store(#[from] StoreError),
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
    pub(super) cached: OnceLock<StoredProcess>,
    /// Held while the process is made.
    pub(super) caching: tokio::sync::Mutex<()>,
}

/// A template for a list.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TemplateSummary {
    pub name: String,
    pub description: String,
    pub packages: BTreeSet<String>,
    /// What is installed in a built-in template, with versions: Debian's packages by name, others as `npm:NAME` and
    /// `pip:NAME`.
    pub versions: BTreeMap<String, String>,
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
    /// Its image, its age and its size, once it is built.
    pub image: Option<String>,
    pub created_at: Option<Timestamp>,
    pub size_bytes: u64,
    /// Why it cannot be used although it was built.
    pub damage: Option<String>,
    /// It comes with Sandling and belongs to no workspace.
    pub built_in: bool,
    /// The OCI image that it was made of.
    pub oci: Option<OciImage>,
    /// What its Dockerfile says about the image (see `SandboxSettings`).
    pub image_config: Option<serde_json::Value>,
    /// The digest of the snapshot that it stands for.
    pub digest: Option<String>,
}

impl TemplateSummary {
    /// Whether sandboxes can be created of it. A built-in template is listed before it is built.
    pub fn is_ready(&self) -> bool {
        self.image.is_some() && self.damage.is_none()
    }
}

impl Template {
    pub(crate) fn disk_mib(&self) -> u32 {
        self.image.manifest.recipe.disk_mib
    }

    pub(crate) fn pids(&self) -> u32 {
        self.image.manifest.recipe.pids
    }

    pub(crate) fn warm_languages(&self) -> Vec<Language> {
        let of_recipe = || self.image.manifest.recipe.warm.iter().map(|warm| warm.language).collect();
        self.baked.warm_languages().map_or_else(of_recipe, <[_]>::to_vec)
    }

    /// What a machine that is restored from it needs.
    pub(crate) fn source(&self, library: &Path) -> Source {
        let cold = self.cold_source(library);
        let cached = match self.cached.get() {
            Some(process) if process.is_whole() => Ok(Some(process.clone().of_template(cold.memory.clone()))),
            Some(_) => Err(Fallback::Damaged),
            None => Ok(None),
        };
        Source { cached, ..cold }
    }

    pub(super) fn cold_source(&self, library: &Path) -> Source {
        Source {
            hardware: self.hardware.clone(),
            memory: Memory::base(self.baked.memory(), library.to_owned()),
            start: Start::DeviceState(self.baked.state()),
            layers: vec![root_layer(&self.image), Layer { name: self.baked.layer_name(), path: self.baked.disk() }],
            overlay: self.baked.overlay(),
            disk_mib: self.disk_mib(),
            plugs: Vec::new(),
            volume_mib: 0,
            disk_name: DISK.to_owned(),
            cached: Ok(None),
            unwritten: None,
        }
    }
}

pub(crate) fn summary(recipe: &Recipe, image: Option<&Image>) -> TemplateSummary {
    TemplateSummary {
        name: recipe.name.to_string(),
        description: recipe.description.clone(),
        packages: recipe.packages.clone(),
        versions: image.map(|image| image.manifest.packages.clone()).unwrap_or_default(),
        vcpus: recipe.vcpus,
        memory_mib: recipe.memory_mib,
        disk_mib: recipe.disk_mib,
        image: image.map(|image| image.id.to_string()),
        created_at: image.map(|image| image.manifest.created),
        size_bytes: image.map_or(0, on_disk),
        damage: None,
        built_in: sandling_image::resolve(recipe.name.as_str()).is_ok(),
        oci: recipe.oci.clone(),
        image_config: None,
        digest: None,
    }
}

/// What its files really take; the root disk is mostly holes.
pub(super) fn on_disk(image: &Image) -> u64 {
    let blocks = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    blocks(image.root_img()) + blocks(image.kernel()) + blocks(image.initrd())
}

pub(super) fn damaged(error: &LoadError) -> TemplateSummary {
    TemplateSummary { damage: Some(error.to_string()), ..TemplateSummary::default() }
}
