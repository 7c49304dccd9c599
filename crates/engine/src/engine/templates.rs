//! Templates of all kinds: built from a recipe, built in, and made from snapshots.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use sandling_image::{BadTemplateName, Existing, RecipeError, Resolved, TemplateName};

use super::instance::Engine;
use crate::machine::{
    ExportedTemplate, ImportedTemplate, SizedImage, Step, TemplateArchiveError, TemplateError, TemplateSummary,
    stored_name, summary,
};
use crate::model::{DEFAULT_WORKSPACE, SnapshotInfo};
use crate::snapshot::untagged;
use crate::store::StoreError;

impl Engine {
    /// A template in this size. The error for an unknown name lists those that exist.
    pub(super) async fn sized_image(
        &self,
        workspace: &str,
        name: &str,
        vcpus: Option<u32>,
        memory_mib: Option<u32>,
    ) -> Result<SizedImage, TemplateError> {
        self.parts.machines.sized(workspace, name, vcpus, memory_mib).await.map_err(|error| match error {
            TemplateError::Name(RecipeError::Unknown { name, .. }) => {
                let listed = self.list_templates(workspace).unwrap_or_default();
                let known = listed.into_iter().map(|template| template.name).collect();
                RecipeError::Unknown { name, known }.into()
            }
            other => other,
        })
    }

    /// The built-in template that a name stands for in a workspace, unless the workspace has one of this name itself. It may
    /// have made it before the built-in one was added.
    pub fn built_in(&self, workspace: &str, name: &str) -> Result<Option<Resolved>, StoreError> {
        let Ok(built_in) = sandling_image::resolve(name) else { return Ok(None) };
        let has_own = self.parts.machines.has_own(workspace, name)
            || self.parts.snapshots.of_template(workspace, name)?.is_some();
        Ok((!has_own).then_some(built_in))
    }

    /// The templates of a workspace, and the built-in ones that are not built yet.
    pub fn list_templates(&self, workspace: &str) -> Result<Vec<TemplateSummary>, TemplateError> {
        let mut listed = self.parts.machines.built(workspace)?;
        listed.extend(self.parts.snapshots.templates(workspace)?);
        let own: BTreeSet<_> =
            listed.iter().filter(|template| !template.built_in).map(|own| own.name.clone()).collect();
        listed.retain(|template| !template.built_in || !own.contains(&template.name));
        for recipe in sandling_image::builtin_recipes() {
            if !listed.iter().any(|template| template.name == recipe.name.as_str()) {
                listed.push(summary(&recipe, None));
            }
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Gives a snapshot a template's name. The template stays when the snapshot is deleted.
    pub fn template_from_snapshot(
        &self,
        workspace: &str,
        snapshot: &SnapshotInfo,
        name: &str,
        description: &str,
    ) -> Result<TemplateSummary, TemplateError> {
        let exists = || TemplateError::Exists(name.to_owned());
        if sandling_image::resolve(name).is_ok() {
            return Err(exists());
        }
        let name = untagged(name);
        check_tagged(workspace, name)?;
        if self.list_templates(workspace)?.iter().any(|template| template.name == name) {
            return Err(exists());
        }
        self.parts.snapshots.add_template(workspace, snapshot, name, description)?.ok_or_else(exists)
    }

    /// Writes a template of the default workspace as a file that another host can import.
    pub async fn export_template(
        &self,
        name: &str,
        out: impl Write + Send + 'static,
        on_step: impl Fn(Step) + Send + 'static,
    ) -> Result<ExportedTemplate, TemplateArchiveError> {
        if self.parts.snapshots.of_template(DEFAULT_WORKSPACE, name).map_err(TemplateError::from)?.is_some() {
            return Err(TemplateArchiveError::FromSnapshot(name.to_owned()));
        }
        self.parts.machines.export_template(name, out, on_step).await
    }

    /// Reads a template that was exported, by default under the name that it had. The file is not trusted until all of its
    /// digests were checked; its content is trusted like that of any template.
    pub async fn import_template(
        &self,
        name: Option<&str>,
        existing: Existing,
        from: impl Read + Send + 'static,
        on_step: impl Fn(Step) + Send + 'static,
    ) -> Result<ImportedTemplate, TemplateArchiveError> {
        let snapshots = self.parts.snapshots.clone();
        // A store that cannot be read might have any name.
        let is_taken = move |name: &str| !matches!(snapshots.of_template(DEFAULT_WORKSPACE, name), Ok(None));
        self.parts.machines.import_template(name, existing, from, is_taken, on_step).await
    }

    /// Removes a template, unless a sandbox of this engine stands on it. Returns how many bytes that freed.
    pub async fn remove_template(&self, workspace: &str, name: &str) -> Result<u64, TemplateError> {
        let freed = match self.parts.snapshots.remove_template(workspace, name).await? {
            Some(freed) => freed,
            None => {
                let image = self.parts.machines.image_of(workspace, name)?;
                if self.list().iter().any(|info| info.image == image.as_str()) {
                    return Err(TemplateError::InUse(name.to_owned()));
                }
                self.parts.machines.remove_template(workspace, name, &image, self.images_in_use()?).await?
            }
        };
        // The next template of that name is another one and must not inherit the default.
        self.parts.networks.remove_default(workspace, Some(name))?;
        Ok(freed)
    }
}

/// Checks the name of a template that stands for a snapshot: `NAME` or `NAME:TAG`.
pub fn check_tagged(workspace: &str, name: &str) -> Result<(), RecipeError> {
    let (plain, tag) = name.split_once(':').unwrap_or((name, "latest"));
    stored_name(workspace, plain)?;
    tag.parse::<TemplateName>().map(drop).map_err(|_| BadTemplateName { name: name.to_owned() }.into())
}
