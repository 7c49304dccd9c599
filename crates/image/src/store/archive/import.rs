//! Importing a template from one file, which is not trusted.
//!
//! The import unpacks everything into the store's scratch directory and checks every digest. Only then does it publish the
//! parts, the image and the bakes, and the name last, like a build.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use super::error::ArchiveError;
use super::header::{ArchiveHeader, HEADER, MANIFEST, bake_folder, folder, parts};
use super::read::{Files, Reading};
use crate::builtin::resolve;
use crate::error::io_at;
use crate::kernel::KernelOrigin;
use crate::manifest::{Manifest, Part, Provenance};
use crate::name::{ContentId, TemplateName};
use crate::progress::{Progress, Report, Step, while_waiting};
use crate::publish::publish_dir;
use crate::recipe::Recipe;
use crate::space;
use crate::store::image::Image;
use crate::store::lock::StoreLock;
use crate::store::names;
use crate::store::parts::{Kind, Parts};
use crate::store::read::{ImageStore, Refusal, parse_manifest};

/// Headers and manifests are some kilobytes.
const LONGEST_TEXT: u64 = 8 << 20;

/// What happens to a template that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Replace,
}

/// What the engine decides about an archive whose header and manifest were read.
pub trait ImportRules {
    /// Refuses an archive of another image than the wanted one.
    fn accepts(&self, _header: &ArchiveHeader) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// The name under which the template is stored, or why it cannot have this name.
    fn stored_name(&self, name: &TemplateName) -> Result<TemplateName, ArchiveError>;

    /// Whether this host can use a bake. The others are not unpacked.
    fn fits(&self, header: &ArchiveHeader, recipe: &Recipe, key: &str) -> bool;

    /// Whether the unpacked directory is a complete bake for this recipe.
    fn is_bake(&self, dir: &Path, recipe: &Recipe) -> bool;
}

#[derive(Debug)]
pub struct ImportedImage {
    pub name: TemplateName,
    pub image: Image,
    /// Of the archive, as `sha256sum` prints it.
    pub sha256: String,
    /// The keys of the bakes that came with it and fit this host.
    pub bakes: BTreeSet<String>,
}

impl ImageStore {
    /// Imports a template under a name, by default the one in the archive. Blocks.
    pub fn import(
        &self,
        from: impl Read,
        name: Option<TemplateName>,
        existing: Existing,
        rules: &dyn ImportRules,
        report: Report<'_>,
    ) -> Result<ImportedImage, ArchiveError> {
        let _lock = StoreLock::acquire(&self.dir, report)?;
        self.sweep_scratch()?;
        let (_guard, scratch) = self.scratch()?;
        let mut reading = Reading::new(from)?;
        let mut files = reading.files()?;
        let (header, manifest) = read_head(&mut files)?;
        rules.accepts(&header)?;
        let name = rules.stored_name(name.as_ref().unwrap_or(&header.name))?;
        self.check_name(&name, &manifest.recipe, existing)?;
        space::check(&[(&scratch, header.stored_bytes)])?;
        let import = Import { store: self, header: &header, manifest: &manifest, scratch: &scratch, rules };
        let bakes = import.unpack(&mut files, report)?;
        let sha256 = reading.finish()?;
        let image = import.publish(&bakes, report)?;
        names::set(&self.dir, &name, &image.id).map_err(io_at("name", &image.dir))?;
        Ok(ImportedImage { name, image, sha256, bakes })
    }

    fn check_name(&self, name: &TemplateName, recipe: &Recipe, existing: Existing) -> Result<(), ArchiveError> {
        if resolve(name.as_str()).is_ok() && recipe.name != *name {
            return Err(ArchiveError::NotThatBuiltIn { name: name.clone(), found: recipe.name.clone() });
        }
        if existing == Existing::Keep && self.has_name(name) {
            return Err(ArchiveError::Exists { name: name.clone() });
        }
        Ok(())
    }
}

fn read_head<R: Read>(files: &mut Files<'_, R>) -> Result<(ArchiveHeader, Manifest), ArchiveError> {
    let header = files.small(HEADER, LONGEST_TEXT).map_err(|error| match error {
        ArchiveError::Damaged(_) => ArchiveError::NotAnArchive,
        other => other,
    })?;
    let header = ArchiveHeader::parse(&header)?;
    let manifest = parse_manifest(&files.small(MANIFEST, LONGEST_TEXT)?).map_err(|refusal| match refusal {
        Refusal::TooNew(format) => ArchiveError::TooNew { format },
        Refusal::Broken(what) => ArchiveError::Damaged(format!("its manifest: {what}")),
    })?;
    header.check(&manifest)?;
    Ok((header, manifest))
}

/// A template on its way in.
struct Import<'a> {
    store: &'a ImageStore,
    header: &'a ArchiveHeader,
    manifest: &'a Manifest,
    scratch: &'a Path,
    rules: &'a dyn ImportRules,
}

impl Import<'_> {
    /// Unpacks and checks all files, and returns the keys of the bakes among them.
    fn unpack<R: Read>(&self, files: &mut Files<'_, R>, report: Report<'_>) -> Result<BTreeSet<String>, ArchiveError> {
        let recipe = &self.manifest.recipe;
        let fitting = self.header.bakes.keys().filter(|key| self.rules.fits(self.header, recipe, key));
        let bakes: BTreeSet<String> = fitting.cloned().collect();
        let all = self.header.files(self.manifest);
        let total = all.iter().fold(0, |sum: u64, file| sum.saturating_add(file.digest.size));
        let mut progress = Progress { step: Step::Unpack, done: 0, total: Some(total), detail: String::new() };
        for file in all {
            let is_wanted = file.bake.is_none_or(|key| bakes.contains(key));
            let place = is_wanted.then(|| self.scratch.join(&file.path));
            files.copy(&file.path, file.digest, place.as_deref(), &mut progress, report)?;
        }
        if !files.is_at_end()? {
            return Err(ArchiveError::damaged("it has more files than its manifest names"));
        }
        match bakes.iter().find(|key| !self.rules.is_bake(&self.scratch.join(bake_folder(key)), recipe)) {
            Some(key) => Err(ArchiveError::Damaged(format!("the bake {key} is incomplete"))),
            None => Ok(bakes),
        }
    }

    fn publish(&self, bakes: &BTreeSet<String>, report: Report<'_>) -> Result<Image, ArchiveError> {
        let stored = Parts::new(&self.store.dir);
        for (kind, part) in parts(self.manifest) {
            let dir = self.scratch.join(folder(kind));
            stored.publish_verified(kind, &dir, part.clone(), self.provenance(kind, part), report)?;
        }
        let image = self.store.publish_image(self.manifest.clone())?;
        for key in bakes {
            let place = image.baked_dir(key);
            let (dir, progress) = (self.scratch.join(bake_folder(key)), Progress::of(Step::Publish, key));
            while_waiting(&progress, report, || publish_dir(&dir, &place)).map_err(io_at("publish", &place))?;
        }
        Ok(image)
    }

    /// Builds of other templates do not reuse imported parts: nothing proves that they were made from what the archive says.
    fn provenance(&self, kind: Kind, part: &Part) -> Provenance {
        match kind {
            Kind::Root => Provenance::Root {
                inputs: ContentId::of(format!("imported {}", part.id).as_bytes()),
                packages: self.manifest.packages.clone(),
            },
            Kind::Kernel => Provenance::Kernel { origin: KernelOrigin::File },
            Kind::Initrd => Provenance::Initrd,
        }
    }
}
