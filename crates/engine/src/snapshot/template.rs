//! Snapshots as templates: a name under which sandboxes begin where one was saved.

use super::kept::KeptSnapshot;
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
        let template = SnapshotTemplate::new(workspace, name, snapshot, description);
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
        let template = SnapshotTemplate::new(workspace, name, snapshot, description);
        self.store.change_snapshot_template(&template)
    }

    /// The snapshot that a template of a workspace stands for, if it is one of this kind. `NAME@DIGEST` is a certain version
    /// of a template, as long as it is kept.
    pub fn of_template(&self, workspace: &str, name: &str) -> Result<Option<SnapshotInfo>, StoreError> {
        if let Some((name, digest)) = name.split_once('@') {
            let current = self.of_template(workspace, name)?.filter(|info| info.digest == digest);
            return if current.is_some() { Ok(current) } else { self.kept(workspace, &version_key(name, digest)) };
        }
        let Some(template) = self.store.snapshot_template(workspace, untagged(name))? else { return Ok(None) };
        Ok(self.store.snapshot(&template.snapshot)?.map(|(info, _)| info))
    }

    /// A template of this kind by its name, or one of its versions.
    pub fn template_named(&self, workspace: &str, name: &str) -> Result<Option<TemplateSummary>, StoreError> {
        let Some(info) = self.of_template(workspace, name)? else { return Ok(None) };
        let plain = untagged(name.split('@').next().unwrap_or(name));
        let description = self.store.snapshot_template(workspace, plain)?.map(|template| template.description);
        let template = SnapshotTemplate::new(workspace, name, &info, &description.unwrap_or_default());
        Ok(Some(summary(template, &info)))
    }

    /// Keeps what a template stands for now, for callers that name it by its digest later.
    pub fn keep_version(&self, workspace: &str, name: &str, info: &SnapshotInfo) -> Result<(), StoreError> {
        self.keep(workspace, &version_key(untagged(name), &info.digest), &info.id)
    }

    /// The versions of a template that are kept, the newest first.
    pub fn versions(&self, workspace: &str, name: &str) -> Result<Vec<KeptSnapshot>, StoreError> {
        let prefix = version_key(untagged(name), "");
        let mut kept = self.list_kept(workspace)?;
        kept.retain(|kept| kept.key.starts_with(&prefix));
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.created_at));
        Ok(kept)
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

    /// Removes a template of this kind. Returns how many bytes that freed, or `None` if there is none.
    pub(crate) async fn remove_template(&self, workspace: &str, name: &str) -> Result<Option<u64>, StoreError> {
        let before = self.store.snapshot_bytes(workspace)?;
        if !self.store.remove_snapshot_template(workspace, untagged(name))? {
            return Ok(None);
        }
        for version in self.versions(workspace, name)? {
            self.store.forget_kept_snapshot(workspace, &version.key)?;
        }
        self.sweep().await?;
        Ok(Some(before.saturating_sub(self.store.snapshot_bytes(workspace)?)))
    }
}

/// `NAME:latest` is `NAME`.
pub(crate) fn untagged(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

fn version_key(name: &str, digest: &str) -> String {
    format!("version {} {digest}", untagged(name))
}

impl SnapshotTemplate {
    fn new(workspace: &str, name: &str, snapshot: &SnapshotInfo, description: &str) -> Self {
        let [workspace, name, description] = [workspace, untagged(name), description].map(str::to_owned);
        Self { workspace, name, snapshot: snapshot.id.clone(), description }
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
        vcpus: snapshot.vcpus,
        memory_mib: snapshot.memory_mib,
        disk_mib: snapshot.disk_mib,
        image: Some(snapshot.image.to_string()),
        created_at: Some(snapshot.created_at),
        size_bytes: snapshot.memory_bytes + snapshot.disk_bytes,
        image_config: snapshot.settings.image_config.clone(),
        packages: snapshot.settings.packages.clone(),
        digest: Some(snapshot.digest.clone()),
        ..TemplateSummary::default()
    }
}
