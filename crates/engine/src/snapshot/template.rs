//! Snapshots as templates: a name under which sandboxes begin where one was saved.

use std::collections::BTreeSet;

use super::snapshots::Snapshots;
use crate::machine::TemplateSummary;
use crate::model::{SnapshotInfo, SnapshotTemplate};
use crate::store::StoreError;

impl Snapshots {
    /// Gives a snapshot a template's name. Returns `None` if a snapshot template has that name.
    pub(crate) fn add_template(
        &self,
        workspace: &str,
        snapshot: &SnapshotInfo,
        name: &str,
        description: &str,
    ) -> Result<Option<TemplateSummary>, StoreError> {
        let template = SnapshotTemplate {
            workspace: workspace.to_owned(),
            name: name.to_owned(),
            snapshot: snapshot.id.clone(),
            description: description.to_owned(),
        };
        let added = self.store.insert_snapshot_template(&template)?;
        Ok(added.then(|| summary(template, snapshot)))
    }

    /// Makes a template of this kind stand for another snapshot. False when there is none.
    pub fn change_template(
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
    pub fn of_template(&self, workspace: &str, name: &str) -> Result<Option<SnapshotInfo>, StoreError> {
        let Some(template) = self.store.snapshot_template(workspace, name)? else { return Ok(None) };
        Ok(self.store.snapshot(&template.snapshot)?.map(|(info, _)| info))
    }

    pub(crate) fn templates(&self, workspace: &str) -> Result<Vec<TemplateSummary>, StoreError> {
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
    pub(crate) async fn remove_template(&self, workspace: &str, name: &str) -> Result<bool, StoreError> {
        let removed = self.store.remove_snapshot_template(workspace, name)?;
        if removed {
            self.sweep().await?;
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
