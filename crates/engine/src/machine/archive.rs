//! Templates as files that other hosts can import.

use std::io::{Read, Write};
use std::path::Path;

use sandling_image::{
    ArchiveError, ArchiveHeader, ContentId, Existing, ExportOptions, ExportedArchive, Image, ImportRules, Recipe,
    TemplateName,
};
use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::Hardware;

use super::baked::{self, Baked};
use super::bakes::OnStep;
use super::machines::Machines;
use super::names::stored_name;
use super::step::Step;
use super::template::{TemplateError, TemplateSummary, summary};
use super::ticks;
use crate::model::DEFAULT_WORKSPACE;

/// Two hosts whose counters differ by less than one part in this many count as equally fast.
const CLOCK_TOLERANCE: u64 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum TemplateArchiveError {
    #[error(
        "template `{0}` was made from steps or a snapshot and cannot be exported; build it again on the other host, or take \
         a snapshot of one of its sandboxes and use `sandling snapshot export`"
    )]
    FromSnapshot(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// A template of another home that is wanted here.
pub(crate) struct WantedImage {
    /// The name under which it is stored.
    pub(crate) name: TemplateName,
    pub(crate) image: ContentId,
}

/// What an export wrote.
pub struct ExportedTemplate {
    pub archive: ExportedArchive,
    pub has_bake: bool,
}

pub struct ImportedTemplate {
    pub template: TemplateSummary,
    /// Of the archive, as `sha256sum` prints it.
    pub sha256: String,
    /// Whether there is a bake for this host. If not, the first sandbox waits until one is made.
    pub is_baked: bool,
}

impl Machines {
    /// Writes a template of the default workspace with the bakes of its own size.
    pub(crate) async fn export_template(
        &self,
        name: &str,
        out: impl Write + Send + 'static,
        on_step: impl Fn(Step) + Send + 'static,
    ) -> Result<ExportedTemplate, TemplateArchiveError> {
        let image = self.inspect_template(DEFAULT_WORKSPACE, name)?;
        let name = stored_name(DEFAULT_WORKSPACE, name).map_err(TemplateError::from)?;
        let export = self.export_options(name, &image).await;
        let has_bake = !export.bakes.is_empty();
        let writing =
            tokio::task::spawn_blocking(move || image.export(export, out, &mut |progress| on_step(progress.into())));
        let archive = writing.await.map_err(|_| TemplateError::CutOff)??;
        Ok(ExportedTemplate { archive, has_bake })
    }

    /// What goes into the archive of an image besides the image itself.
    pub(crate) async fn export_options(&self, name: TemplateName, image: &Image) -> ExportOptions {
        let hardware = sized(self.hardware(1, 1), &image.manifest.recipe);
        let is_portable = |key: &String| Baked::load_portable(&image.baked_dir(key), &hardware).is_some();
        let bakes = image.bakes().into_iter().filter(is_portable).collect();
        ExportOptions { name, bakes, tsc_mhz: tsc_mhz().await }
    }

    /// Reads an exported template into the default workspace. `is_taken` says whether a snapshot has a name already.
    pub(crate) async fn import_template(
        &self,
        name: Option<&str>,
        existing: Existing,
        from: impl Read + Send + 'static,
        is_taken: impl Fn(&str) -> bool + Send + 'static,
        on_step: impl Fn(Step) + Send + 'static,
    ) -> Result<ImportedTemplate, TemplateArchiveError> {
        let name = name.map(|name| stored_name(DEFAULT_WORKSPACE, name)).transpose().map_err(TemplateError::from)?;
        let rules = HostRules { hardware: self.hardware(1, 1), tsc_mhz: tsc_mhz().await, is_taken, wanted: None };
        self.import(name, existing, from, rules, on_step).await
    }

    /// Reads a template that another home exports, for any workspace. It must be the image that is wanted.
    pub(crate) async fn import_wanted(
        &self,
        wanted: WantedImage,
        existing: Existing,
        from: impl Read + Send + 'static,
        on_step: OnStep,
    ) -> Result<TemplateSummary, TemplateArchiveError> {
        let (hardware, tsc_mhz) = (self.hardware(1, 1), tsc_mhz().await);
        let rules = HostRules { hardware, tsc_mhz, is_taken: |_: &str| false, wanted: Some(wanted) };
        let steps = on_step.clone();
        let imported = self.import(None, existing, from, rules, move |step| steps(step)).await?;
        Ok(imported.template)
    }

    async fn import<F: Fn(&str) -> bool + Send + 'static>(
        &self,
        name: Option<TemplateName>,
        existing: Existing,
        from: impl Read + Send + 'static,
        rules: HostRules<F>,
        on_step: impl Fn(Step) + Send + 'static,
    ) -> Result<ImportedTemplate, TemplateArchiveError> {
        let images = self.images.clone();
        let reading = tokio::task::spawn_blocking(move || {
            images.import(from, name, existing, &rules, &mut |progress| on_step(progress.into()))
        });
        let imported = reading.await.map_err(|_| TemplateError::CutOff)??;
        self.bakes.stored.changed();
        let recipe = &imported.image.manifest.recipe;
        let key = baked::key(&sized(self.hardware(1, 1), recipe));
        let is_baked = matches!(Baked::load(&imported.image.baked_dir(&key)), Ok(Some(_)));
        let template = TemplateSummary { name: imported.name.to_string(), ..summary(recipe, Some(&imported.image)) };
        Ok(ImportedTemplate { template, sha256: imported.sha256, is_baked })
    }
}

/// What this host takes from an archive.
struct HostRules<F> {
    /// In any size.
    hardware: Hardware,
    tsc_mhz: Option<u64>,
    is_taken: F,
    /// If set, the archive has no say in its name.
    wanted: Option<WantedImage>,
}

impl<F: Fn(&str) -> bool> ImportRules for HostRules<F> {
    fn accepts(&self, header: &ArchiveHeader) -> Result<(), ArchiveError> {
        match &self.wanted {
            Some(wanted) if wanted.image != header.image => {
                Err(ArchiveError::OtherImage { wanted: wanted.image.clone(), found: header.image.clone() })
            }
            _ => Ok(()),
        }
    }

    fn stored_name(&self, name: &TemplateName) -> Result<TemplateName, ArchiveError> {
        if let Some(wanted) = &self.wanted {
            return Ok(wanted.name.clone());
        }
        // An archive cannot choose a name that belongs to another workspace.
        let stored = stored_name(DEFAULT_WORKSPACE, name.as_str())?;
        if (self.is_taken)(stored.as_str()) { Err(ArchiveError::Taken { name: stored }) } else { Ok(stored) }
    }

    fn fits(&self, header: &ArchiveHeader, recipe: &Recipe, key: &str) -> bool {
        let hardware = sized(self.hardware.clone(), recipe);
        let has_same_clock = match (hardware.accelerator, self.tsc_mhz, header.tsc_mhz) {
            (Accelerator::Kvm, ..) => true,
            (Accelerator::Tcg, Some(ours), Some(theirs)) => ours.abs_diff(theirs) <= (ours / CLOCK_TOLERANCE).max(1),
            (Accelerator::Tcg, ours, theirs) => ours == theirs,
        };
        has_same_clock && baked::key(&hardware) == key
    }

    fn is_bake(&self, dir: &Path, recipe: &Recipe) -> bool {
        Baked::load_portable(dir, &sized(self.hardware.clone(), recipe)).is_some()
    }
}

fn sized(hardware: Hardware, recipe: &Recipe) -> Hardware {
    Hardware { vcpus: recipe.vcpus, memory_mib: recipe.memory_mib, ..hardware }
}

/// The rate of this host's time stamp counter, which emulated guests take for their clock.
async fn tsc_mhz() -> Option<u64> {
    ticks::khz().await.map(|khz| (khz + 500) / 1000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn rules(accelerator: Accelerator) -> HostRules<fn(&str) -> bool> {
        let cpu_model = accelerator.default_cpu_model().to_owned();
        let hardware = Hardware { accelerator, cpu_model, vcpus: 1, memory_mib: 1 };
        HostRules { hardware, tsc_mhz: Some(2500), is_taken: |name| name == "taken", wanted: None }
    }

    fn header(tsc_mhz: Option<u64>) -> ArchiveHeader {
        ArchiveHeader {
            format: 1,
            name: "mine".parse().unwrap(),
            image: sandling_image::ContentId::of(b""),
            sandling: "0.1.0".to_owned(),
            stored_bytes: 0,
            tsc_mhz,
            bakes: BTreeMap::new(),
        }
    }

    #[test]
    fn a_bake_fits_only_the_same_hardware_and_an_emulated_one_only_the_same_clock() {
        let recipe = sandling_image::resolve("base").unwrap().recipe;
        let key = |rules: &HostRules<_>| baked::key(&sized(rules.hardware.clone(), &recipe));
        let (emulated, on_kvm) = (rules(Accelerator::Tcg), rules(Accelerator::Kvm));
        assert!(emulated.fits(&header(Some(2501)), &recipe, &key(&emulated)));
        assert!(!emulated.fits(&header(Some(2600)), &recipe, &key(&emulated)));
        assert!(!emulated.fits(&header(None), &recipe, &key(&emulated)));
        assert!(on_kvm.fits(&header(None), &recipe, &key(&on_kvm)));
        assert!(!on_kvm.fits(&header(Some(2500)), &recipe, &key(&emulated)));
    }

    #[test]
    fn an_archive_gets_no_name_of_another_workspace_or_of_a_snapshot() {
        let stored = |name: &str| rules(Accelerator::Tcg).stored_name(&name.parse().unwrap());
        assert_eq!(stored("mine").unwrap().as_str(), "mine");
        assert_eq!(stored("ubuntu-24.04").unwrap().as_str(), "base");
        assert!(matches!(stored("w.team.mine"), Err(ArchiveError::Name(_))));
        assert!(matches!(stored("taken"), Err(ArchiveError::Taken { .. })));
    }

    #[test]
    fn a_copy_of_another_home_is_the_image_that_is_wanted_and_does_not_choose_its_name() {
        let wanted = |image: &[u8]| WantedImage {
            name: "w.team.mine".parse().unwrap(),
            image: sandling_image::ContentId::of(image),
        };
        let copy = |image: &[u8]| HostRules { wanted: Some(wanted(image)), ..rules(Accelerator::Tcg) };
        assert!(copy(b"").accepts(&header(None)).is_ok());
        let other = copy(b"other").accepts(&header(None)).unwrap_err();
        assert!(matches!(&other, ArchiveError::OtherImage { .. }), "{other}");
        assert_eq!(copy(b"").stored_name(&"w.other.theirs".parse().unwrap()).unwrap().as_str(), "w.team.mine");
    }
}
