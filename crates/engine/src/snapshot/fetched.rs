//! A snapshot of another node, whose files come one by one.
//!
//! It keeps its id and is not in the list here: its own node lists it. Files that this home has already are not fetched. Like
//! an import, it writes everything to a directory of its own and checks every digest first.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::files::Files;
use super::import::{Import, ImportError, Settling, parse_manifest};
use super::portable::{Manifest, Role};
use super::snapshots::Snapshots;
use super::work_dir::WorkDir;
use crate::model::{Base, Part, SnapshotId, SnapshotInfo, Visibility};
use crate::store::StoreError;

/// What is kept under such a key is a copy that may be evicted.
const KEY: &str = "fetched ";

/// A snapshot that is being fetched. If it is dropped, nothing of it stays.
pub struct IncomingSnapshot {
    snapshots: Arc<Snapshots>,
    manifest: Manifest,
    base: Option<Base>,
    work: WorkDir,
}

/// A file that is needed, and where it belongs.
pub struct WantedFile {
    /// As [`PartFile::name`](super::PartFile).
    pub name: String,
    pub bytes: u64,
    pub path: PathBuf,
}

impl Snapshots {
    /// Begins to fetch a snapshot. `digest` names the content of a file of the template's bake. Blocks.
    pub fn begin_fetch(
        self: &Arc<Self>,
        workspace: &str,
        id: &SnapshotId,
        manifest: Value,
        digest: impl Fn(&str) -> Option<[u8; 32]>,
    ) -> Result<IncomingSnapshot, ImportError> {
        let manifest = parse_manifest(manifest)?;
        if manifest.snapshot.workspace != workspace || manifest.snapshot.id != *id {
            return Err(ImportError::Damaged("it is another snapshot"));
        }
        self.check(&manifest)?;
        let work = WorkDir::create(&self.dir).map_err(ImportError::Io)?;
        let mut incoming = IncomingSnapshot { snapshots: self.clone(), manifest, base: None, work };
        let lowest = [Role::BaseMemory, Role::BaseRoot, Role::BaseDisk].map(|role| digest(&role.file_name()));
        let lowest: Vec<_> = lowest.into_iter().flatten().collect();
        if lowest.len() < 3 {
            return Err(ImportError::Damaged("it lacks a file of its template"));
        }
        incoming.base = incoming.import().base(self, &lowest);
        incoming.link_known();
        Ok(incoming)
    }

    /// A snapshot of another node that was fetched and is still here. This counts as a use.
    pub fn fetched(&self, workspace: &str, id: &SnapshotId) -> Result<Option<SnapshotInfo>, StoreError> {
        let key = format!("{KEY}{id}");
        if let Some(kept) = self.kept(workspace, &key)? {
            return Ok(Some(kept));
        }
        // It was forgotten, but a sandbox stands on it.
        let needed = self.find_any(workspace, id)?;
        if needed.is_some() {
            self.keep(workspace, &key, id)?;
        }
        Ok(needed)
    }

    /// The fetched snapshot of this name that was used last.
    pub fn fetched_by_name(&self, workspace: &str, name: &str) -> Result<Option<SnapshotInfo>, StoreError> {
        let kept = self.list_kept(workspace)?.into_iter().rev();
        let mut fetched = kept.filter(|kept| kept.key.starts_with(KEY)).map(|kept| kept.snapshot);
        Ok(fetched.find(|info| info.name.as_deref() == Some(name)))
    }

    /// Forgets the copies that were not used since a time. What sandboxes stand on stays.
    pub async fn forget_fetched(&self, workspace: &str, since: jiff::Timestamp) -> Result<(), StoreError> {
        let mut kept = self.list_kept(workspace)?;
        kept.retain(|kept| kept.key.starts_with(KEY) && kept.used_at < since);
        let keys: Vec<_> = kept.into_iter().map(|kept| kept.key).collect();
        if keys.is_empty() { Ok(()) } else { self.forget_kept(workspace, &keys).await.map(drop) }
    }
}

impl IncomingSnapshot {
    fn import(&self) -> Import<'_> {
        Import { manifest: &self.manifest, work: self.work.path() }
    }

    /// Links the layers that this home has, so that they are neither fetched nor written. A wrong one is noticed by its
    /// digest.
    fn link_known(&self) {
        for (number, entry) in self.manifest.files.iter().enumerate() {
            let known = match (&entry.role, &self.base) {
                (Role::Pages(id), _) => Files::new(&self.snapshots.dir, id).layer(Part::Memory),
                (Role::Disk(id), _) => Files::new(&self.snapshots.dir, id).layer(Part::Disk),
                (Role::BaseMemory, Some(base)) => Files::new(&self.snapshots.dir, &base.id).base_memory(),
                (Role::BaseRoot, Some(base)) => Files::new(&self.snapshots.dir, &base.id).base_root(),
                (Role::BaseDisk, Some(base)) => Files::new(&self.snapshots.dir, &base.id).disk(),
                _ => continue,
            };
            if fs::symlink_metadata(&known).is_ok_and(|file| file.is_file() && file.len() == entry.bytes) {
                // Without the link, the file is fetched.
                let _ = fs::hard_link(known, self.import().at(number));
            }
        }
    }

    /// The files that this home lacks.
    pub fn wanted(&self) -> Vec<WantedFile> {
        let files = self.manifest.files.iter().enumerate().map(|(number, entry)| (entry, self.import().at(number)));
        let is_wanted = |role: &Role| {
            let is_of_base = matches!(role, Role::BaseMemory | Role::BaseRoot | Role::BaseDisk);
            !is_of_base || self.base.is_some()
        };
        let wanted = files.filter(|(entry, path)| is_wanted(&entry.role) && !path.exists());
        wanted.map(|(entry, path)| WantedFile { name: entry.role.file_name(), bytes: entry.bytes, path }).collect()
    }

    /// Checks all files and makes the snapshot usable. Blocks.
    pub fn finish(self) -> Result<SnapshotInfo, ImportError> {
        let import = self.import();
        import.check_layers()?;
        import.check_map()?;
        let snapshot = &self.manifest.snapshot;
        let settling = Settling {
            id: snapshot.id.clone(),
            workspace: &snapshot.workspace,
            name: snapshot.name.clone(),
            base: self.base.clone(),
            visibility: Visibility::Hidden,
            created_at: snapshot.created_at,
        };
        let _held = self.snapshots.hold(&snapshot.id);
        let info = import.settle(&self.snapshots, settling)?;
        self.snapshots.keep(&info.workspace, &format!("{KEY}{}", info.id), &info.id)?;
        Ok(info)
    }
}
