//! Saving the machine of a build as a template.

use std::sync::Arc;

use sandling_engine::{Sandbox, SnapshotInfo, SnapshotSpec, TemplateError};

use super::machine::BuildFailure;
use super::registry::{Build, Level};
use super::start::{BuildSpec, Builds, SaveAs};

impl Builds {
    /// Saves the machine, and returns how many bytes that took. A template is also kept under a key, so that the same build
    /// need not run again.
    pub(super) async fn save(
        &self,
        build: &Build,
        sandbox: &Arc<Sandbox>,
        spec: &BuildSpec,
        key: Option<&str>,
    ) -> Result<u64, BuildFailure> {
        let workspace = build.workspace.as_str();
        let mut bytes = 0;
        match &spec.save_as {
            SaveAs::Snapshots(names) => {
                for name in names {
                    let mut all = self.engine.snapshots().list(workspace)?.into_iter();
                    let older = all.rfind(|info| info.name.as_ref() == Some(name));
                    let (info, _) = self
                        .engine
                        .snapshot(sandbox, SnapshotSpec { name: Some(name.clone()), ..SnapshotSpec::default() })
                        .await?;
                    bytes += size(&info);
                    build.log(&format!("saved as {}", info.id), Level::Info, None);
                    if let Some(older) = older {
                        self.engine.snapshots().delete(workspace, &older.id).await?;
                    }
                }
            }
            SaveAs::Template { name, replace } => {
                let (info, _) = self.engine.snapshot(sandbox, SnapshotSpec::default()).await?;
                bytes = size(&info);
                let named = self.name_template(workspace, &info, name, *replace, spec.description.as_deref());
                if let (Ok(()), Some(key)) = (&named, key) {
                    self.engine.snapshots().keep(workspace, &super::step_cache::stored_key(key), &info.id)?;
                }
                // The template keeps the snapshot. Deleting it here drops it if it could not be named, and drops the
                // snapshot that had the name before.
                self.engine.snapshots().delete(workspace, &info.id).await?;
                named?;
                build.log(&format!("saved as {name}"), Level::Info, None);
            }
        }
        Ok(bytes)
    }

    pub(super) fn name_template(
        &self,
        workspace: &str,
        info: &SnapshotInfo,
        name: &str,
        replace: bool,
        description: Option<&str>,
    ) -> Result<(), TemplateError> {
        let description = description.map_or_else(|| format!("built from steps on {}", info.template), str::to_owned);
        self.engine.snapshots().keep_version(workspace, name, info)?;
        if replace && self.engine.snapshots().change_template(workspace, name, info, &description)? {
            return Ok(());
        }
        self.engine.template_from_snapshot(workspace, info, name, &description).map(drop)
    }
}

fn size(info: &SnapshotInfo) -> u64 {
    info.memory_bytes + info.disk_bytes
}
