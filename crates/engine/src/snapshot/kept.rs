//! Snapshots that are kept under a key: a cache that its owner evicts.

use jiff::Timestamp;

use super::snapshots::Snapshots;
use crate::model::{SandboxId, SnapshotId, SnapshotInfo};
use crate::store::StoreError;

/// What is kept under such a key is a failover point. Nobody evicts it.
pub(crate) const POINT_KEY: &str = "failover ";

/// A snapshot and the key that it is kept under.
#[derive(Debug, Clone)]
pub struct KeptSnapshot {
    pub key: String,
    pub snapshot: SnapshotInfo,
    pub created_at: Timestamp,
    pub used_at: Timestamp,
}

/// A snapshot that is kept because it is the point of a sandbox, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPoint {
    pub workspace: String,
    pub sandbox: SandboxId,
    pub snapshot: SnapshotId,
}

impl Snapshots {
    /// Keeps a snapshot until [`Snapshots::forget_kept`]. It replaces the one that had the key.
    pub fn keep(&self, workspace: &str, key: &str, id: &SnapshotId) -> Result<(), StoreError> {
        self.store.keep_snapshot(workspace, key, id)
    }

    /// The snapshot of a key. This counts as a use.
    pub fn kept(&self, workspace: &str, key: &str) -> Result<Option<SnapshotInfo>, StoreError> {
        let Some(id) = self.store.kept_snapshot(workspace, key)? else { return Ok(None) };
        Ok(self.store.snapshot(&id)?.map(|(info, _)| info).filter(|info| info.workspace == workspace))
    }

    /// A snapshot of a workspace that is listed or kept under a key.
    pub fn find_usable(&self, workspace: &str, id: &SnapshotId) -> Result<Option<SnapshotInfo>, StoreError> {
        if let Some(listed) = self.find(workspace, id)? {
            return Ok(Some(listed));
        }
        let is_kept = self.store.kept_snapshots_of(workspace)?.iter().any(|row| row.snapshot == *id);
        Ok(if is_kept { self.get(id)?.filter(|info| info.workspace == workspace) } else { None })
    }

    /// All that a workspace keeps and that may be evicted, the one that was not used for longest first.
    pub fn list_kept(&self, workspace: &str) -> Result<Vec<KeptSnapshot>, StoreError> {
        let mut kept = Vec::new();
        let rows = self.store.kept_snapshots_of(workspace)?.into_iter();
        for row in rows.filter(|row| !row.key.starts_with(POINT_KEY)) {
            if let Some((snapshot, _)) = self.store.snapshot(&row.snapshot)? {
                let (created_at, used_at) = (row.created_at, row.used_at);
                kept.push(KeptSnapshot { key: row.key, snapshot, created_at, used_at });
            }
        }
        Ok(kept)
    }

    /// Forgets keys, and removes the snapshots that nothing else needs. Returns how many bytes that freed.
    pub async fn forget_kept(&self, workspace: &str, keys: &[String]) -> Result<u64, StoreError> {
        let before = self.store.snapshot_bytes(workspace)?;
        for key in keys {
            self.store.forget_kept_snapshot(workspace, key)?;
        }
        self.sweep().await?;
        Ok(before.saturating_sub(self.store.snapshot_bytes(workspace)?))
    }

    /// Keeps a snapshot as a point of a sandbox.
    pub fn keep_point(&self, workspace: &str, sandbox: &SandboxId, id: &SnapshotId) -> Result<(), StoreError> {
        self.keep(workspace, &format!("{POINT_KEY}{sandbox} {id}"), id)
    }

    /// The points of all sandboxes that were here, also of those that have ended.
    pub fn points(&self) -> Result<Vec<KeptPoint>, StoreError> {
        let rows = self.store.all_kept_snapshots()?.into_iter();
        let points = rows.filter_map(|(workspace, row)| {
            let sandbox = SandboxId::parse(row.key.strip_prefix(POINT_KEY)?.split(' ').next()?)?;
            Some(KeptPoint { workspace, sandbox, snapshot: row.snapshot })
        });
        Ok(points.collect())
    }

    /// Forgets a point, and what only it needed.
    pub async fn forget_point(&self, point: &KeptPoint) -> Result<(), StoreError> {
        let KeptPoint { workspace, sandbox, snapshot } = point;
        let keys = [snapshot.as_str(), "saving"].map(|of| format!("{POINT_KEY}{sandbox} {of}"));
        self.forget_kept(workspace, &keys).await.map(drop)
    }

    /// How many bytes all snapshots of a workspace take.
    pub fn stored_bytes(&self, workspace: &str) -> Result<u64, StoreError> {
        self.store.snapshot_bytes(workspace)
    }
}
