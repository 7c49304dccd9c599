//! Snapshots as templates: a name under which sandboxes begin where one was saved.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::info::{SnapshotId, SnapshotInfo};
use crate::engine::Engine;
use crate::store::StoreError;
use crate::template::{TemplateError, TemplateSummary, stored_name};

/// A name that stands for a snapshot, which is kept for as long as it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotTemplate {
    pub workspace: String,
    pub name: String,
    pub snapshot: SnapshotId,
    pub description: String,
}

impl Engine {
    /// Gives a snapshot a template's name. The snapshot may be deleted afterwards; the template stays.
    pub fn template_from_snapshot(
        &self,
        workspace: &str,
        snapshot: &SnapshotInfo,
        name: &str,
        description: &str,
    ) -> Result<TemplateSummary, TemplateError> {
        if sandling_image::resolve(name).is_ok() {
            return Err(TemplateError::Exists(name.to_owned()));
        }
        stored_name(workspace, name)?;
        let taken = self.list_templates(workspace)?.iter().any(|template| template.name == name);
        let template = SnapshotTemplate {
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            snapshot: snapshot.id.clone(),
            description: description.to_owned(),
        };
        if taken || !self.store.insert_snapshot_template(&template)? {
            return Err(TemplateError::Exists(name.to_owned()));
        }
        Ok(summary(template, snapshot))
    }

    /// Makes a template of this kind stand for another snapshot. False when there is none.
    pub fn template_stands_for(
        &self,
        workspace: &str,
        name: &str,
        snapshot: &SnapshotInfo,
        description: &str,
    ) -> Result<bool, StoreError> {
        let template = SnapshotTemplate {
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            snapshot: snapshot.id.clone(),
            description: description.to_owned(),
        };
        self.store.change_snapshot_template(&template)
    }

    /// The snapshot that a template of a workspace stands for, if it is one of this kind.
    pub fn snapshot_of_template(&self, workspace: &str, name: &str) -> Result<Option<SnapshotInfo>, StoreError> {
        let Some(template) = self.store.snapshot_template(workspace, name)? else { return Ok(None) };
        Ok(self.store.snapshot(&template.snapshot)?.map(|(info, _)| info))
    }

    pub(crate) fn snapshot_templates(&self, workspace: &str) -> Result<Vec<TemplateSummary>, StoreError> {
        let mut summaries = Vec::new();
        for template in self.store.snapshot_templates()? {
            if template.workspace == workspace
                && let Some((snapshot, _)) = self.store.snapshot(&template.snapshot)?
            {
                summaries.push(summary(template, &snapshot));
            }
        }
        Ok(summaries)
    }

    /// True if there was one of this kind, which is gone now.
    pub(crate) async fn remove_snapshot_template(
        self: &Arc<Self>,
        workspace: &str,
        name: &str,
    ) -> Result<bool, StoreError> {
        let removed = self.store.remove_snapshot_template(workspace, name)?;
        if removed {
            self.sweep_snapshots().await?;
        }
        Ok(removed)
    }
}

fn summary(template: SnapshotTemplate, snapshot: &SnapshotInfo) -> TemplateSummary {
    let described = if template.description.is_empty() {
        format!("a snapshot of a sandbox of {}", snapshot.template)
    } else {
        template.description
    };
    TemplateSummary {
        name: template.name,
        description: described,
        packages: BTreeSet::new(),
        vcpus: snapshot.vcpus,
        memory_mib: snapshot.memory_mib,
        disk_mib: snapshot.disk_mib,
        image: Some(snapshot.image.to_string()),
        created_at: Some(snapshot.created_at),
        size_bytes: snapshot.memory_bytes + snapshot.disk_bytes,
        damage: None,
        built_in: false,
    }
}

impl From<StoreError> for TemplateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
