//! Building a template, if it is not up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tempfile::TempDir;

use super::image::{INITRD, Image, ROOT_IMG};
use super::lock::StoreLock;
use super::names;
use super::parts::{Kind, Parts};
use super::read::ImageStore;
use crate::error::{BuildError, io_at};
use crate::guest::GUEST;
use crate::initrd;
use crate::inputs;
use crate::kernel::{self, KernelOrigin, OwnKernel};
use crate::manifest::{Manifest, Part, Provenance, format_of};
use crate::progress::{Progress, Report, Step};
use crate::publish::{publish_dir, scratch_dir, write_json};
use crate::recipe::Recipe;
use crate::supply::Session;

#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// Install the packages again, even if no input changed.
    pub force: bool,
    /// Use Debian's newest kernel. Otherwise, a template keeps its kernel.
    pub upgrade: bool,
    pub kernel: Option<OwnKernel>,
}

/// Writes a root disk to a path.
pub type RootMaker<'a> = &'a dyn Fn(&Path, Report<'_>) -> Result<(), BuildError>;

impl BuildOptions {
    fn allow_reuse(&self) -> bool {
        !self.force && !self.upgrade && self.kernel.is_none()
    }
}

impl ImageStore {
    /// Builds the parts of the recipe's image whose inputs changed. Blocks; a build from scratch takes minutes.
    pub fn ensure(&self, recipe: &Recipe, options: &BuildOptions, report: Report<'_>) -> Result<Image, BuildError> {
        self.build(recipe, options, None, report)
    }

    /// Does the same for a recipe with an OCI image, whose root disk `make_root` writes.
    pub fn ensure_oci(
        &self,
        recipe: &Recipe,
        make_root: RootMaker<'_>,
        report: Report<'_>,
    ) -> Result<Image, BuildError> {
        self.build(recipe, &BuildOptions::default(), Some(make_root), report)
    }

    /// Whether the root disk of a recipe exists already.
    pub fn has_root(&self, recipe: &Recipe) -> Result<bool, BuildError> {
        let wanted = inputs::of_root(recipe);
        let found = Parts::new(&self.dir).find_all(Kind::Root, |provenance| match provenance {
            Provenance::Root { inputs, .. } if inputs == wanted => Some(()),
            _ => None,
        });
        Ok(!found?.is_empty())
    }

    fn build(
        &self,
        recipe: &Recipe,
        options: &BuildOptions,
        make_root: Option<RootMaker<'_>>,
        report: Report<'_>,
    ) -> Result<Image, BuildError> {
        recipe.check()?;
        let up_to_date = || if options.allow_reuse() { self.up_to_date(recipe) } else { None };
        if let Some(image) = up_to_date() {
            return Ok(image);
        }
        let lock = StoreLock::acquire(&self.dir, report)?;
        // Another builder may have finished while this one waited for the lock.
        if let Some(image) = up_to_date() {
            return Ok(image);
        }
        self.sweep_scratch()?;
        let session = self.supply.begin(&self.dir, recipe, lock.file())?;
        let parts = Parts::new(&self.dir);
        let build = Build { store: self, parts, recipe, session: session.as_ref(), make_root };
        build.run(options, report)
    }

    fn up_to_date(&self, recipe: &Recipe) -> Option<Image> {
        let image = self.load(&recipe.name).ok()?;
        (image.manifest.inputs == inputs::of_image(recipe, &image.manifest.kernel.id)).then_some(image)
    }

    /// Removes what interrupted builds left. The caller holds the lock, so no build is running.
    pub(super) fn sweep_scratch(&self) -> Result<(), BuildError> {
        let dir = self.dir.join("scratch");
        for entry in fs::read_dir(&dir).map_err(io_at("list", &dir))?.flatten() {
            fs::remove_dir_all(entry.path()).map_err(io_at("remove", &entry.path()))?;
        }
        Ok(())
    }

    /// Stores an image whose parts are stored. The caller holds the lock.
    pub(super) fn publish_image(&self, manifest: Manifest) -> Result<Image, BuildError> {
        let image = Image::new(&self.dir, manifest);
        let (_guard, dir) = self.scratch()?;
        write_json(&dir.join("manifest.json"), &image.manifest).map_err(io_at("write a manifest in", &dir))?;
        publish_dir(&dir, &image.dir).map_err(io_at("publish", &image.dir))?;
        // A damaged manifest is replaced, and nothing beside it: snapshots stand on the bakes there.
        if self.read_image(&image.id, None).is_err() {
            let path = image.dir.join("manifest.json");
            write_json(&path, &image.manifest).map_err(io_at("write a manifest in", &image.dir))?;
        }
        Ok(image)
    }

    pub(super) fn scratch(&self) -> Result<(TempDir, PathBuf), BuildError> {
        let parent = self.dir.join("scratch");
        scratch_dir(&parent).map_err(io_at("create a directory in", &parent))
    }
}

struct Build<'a> {
    store: &'a ImageStore,
    parts: Parts,
    recipe: &'a Recipe,
    session: &'a dyn Session,
    make_root: Option<RootMaker<'a>>,
}

impl Build<'_> {
    fn run(&self, options: &BuildOptions, report: Report<'_>) -> Result<Image, BuildError> {
        let (root, packages) = self.root(options.force, report)?;
        let (kernel, kernel_origin) = self.kernel(options, report)?;
        let initrd = self.initrd(&kernel, report)?;
        let mut manifest = Manifest {
            format: format_of(self.recipe),
            id: root.id.clone(),
            recipe: self.recipe.clone(),
            inputs: inputs::of_image(self.recipe, &kernel.id),
            root,
            kernel,
            initrd,
            kernel_origin,
            packages,
            created: Timestamp::now(),
        };
        manifest.id = manifest.computed_id();
        self.publish(manifest)
    }

    fn root(&self, force: bool, report: Report<'_>) -> Result<(Part, BTreeMap<String, String>), BuildError> {
        let wanted = inputs::of_root(self.recipe);
        let made_from_it = |provenance| match provenance {
            Provenance::Root { inputs, packages } if inputs == wanted => Some(packages),
            _ => None,
        };
        if !force && let Some(found) = self.parts.find_all(Kind::Root, made_from_it)?.into_iter().next() {
            return Ok(found);
        }
        let (_guard, dir) = self.scratch()?;
        let path = dir.join(ROOT_IMG);
        let packages = match self.make_root {
            Some(make_root) => make_root(&path, report).map(|()| BTreeMap::new())?,
            None => self.session.root(&path, force, report)?,
        };
        let provenance = Provenance::Root { inputs: wanted, packages: packages.clone() };
        Ok((self.parts.publish(Kind::Root, &dir, provenance, report)?, packages))
    }

    fn kernel(&self, options: &BuildOptions, report: Report<'_>) -> Result<(Part, KernelOrigin), BuildError> {
        if let Some(own) = &options.kernel {
            let (_guard, dir) = self.scratch()?;
            kernel::from_files(own, &dir)?;
            return self.publish_kernel(&dir, KernelOrigin::File, report);
        }
        if !options.upgrade
            && let Some(found) = self.existing_kernel()?
        {
            return Ok(found);
        }
        self.newest_kernel(report)
    }

    /// The template's current kernel; for a new template, the newest of Debian's kernels in the store.
    fn existing_kernel(&self) -> Result<Option<(Part, KernelOrigin)>, BuildError> {
        let kernels = self.kernels()?;
        if let Ok(image) = self.store.inspect(&self.recipe.name)
            && let Some(found) = kernels.iter().find(|(part, _)| part.id == image.manifest.kernel.id)
        {
            return Ok(Some(found.clone()));
        }
        let debians = kernels.into_iter().filter(|(_, origin)| *origin != KernelOrigin::File);
        Ok(debians.max_by_key(|(_, origin)| age(origin)))
    }

    /// The undamaged kernels in the store.
    fn kernels(&self) -> Result<Vec<(Part, KernelOrigin)>, BuildError> {
        self.parts.find_all(Kind::Kernel, |provenance| match provenance {
            Provenance::Kernel { origin } => Some(origin),
            _ => None,
        })
    }

    fn newest_kernel(&self, report: Report<'_>) -> Result<(Part, KernelOrigin), BuildError> {
        let kernels = self.kernels()?;
        let known = |wanted: &KernelOrigin| kernels.iter().any(|(_, origin)| origin == wanted);
        let (_guard, dir) = self.scratch()?;
        let newest = self.session.kernel(&dir, &known, report)?;
        match kernels.iter().find(|(_, origin)| *origin == newest) {
            Some(found) => Ok(found.clone()),
            None => self.publish_kernel(&dir, newest, report),
        }
    }

    fn publish_kernel(
        &self,
        dir: &Path,
        origin: KernelOrigin,
        report: Report<'_>,
    ) -> Result<(Part, KernelOrigin), BuildError> {
        let provenance = Provenance::Kernel { origin: origin.clone() };
        Ok((self.parts.publish(Kind::Kernel, dir, provenance, report)?, origin))
    }

    fn initrd(&self, kernel: &Part, report: Report<'_>) -> Result<Part, BuildError> {
        report(&Progress::of(Step::Initrd, ""));
        let archive = initrd::pack(&Kind::Kernel.dir(&self.store.dir, &kernel.id), GUEST)?;
        let (_guard, dir) = self.scratch()?;
        let path = dir.join(INITRD);
        fs::write(&path, &archive).map_err(io_at("write", &path))?;
        self.parts.publish(Kind::Initrd, &dir, Provenance::Initrd, report)
    }

    fn publish(&self, manifest: Manifest) -> Result<Image, BuildError> {
        let image = self.store.publish_image(manifest)?;
        names::set(&self.store.dir, &self.recipe.name, &image.id).map_err(io_at("name", &image.dir))?;
        Ok(image)
    }

    fn scratch(&self) -> Result<(TempDir, PathBuf), BuildError> {
        self.store.scratch()
    }
}

/// Orders Debian's kernels by their version.
fn age(origin: &KernelOrigin) -> Vec<u64> {
    match origin {
        KernelOrigin::Debian { package, version } => [kernel::numbers(package), kernel::numbers(version)].concat(),
        KernelOrigin::File => Vec::new(),
    }
}
