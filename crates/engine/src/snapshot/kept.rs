//! Snapshots that are kept under a key: a cache that its owner evicts.

use jiff::Timestamp;

use super::snapshots::Snapshots;
use crate::model::{SnapshotId, SnapshotInfo};
use crate::store::StoreError;

/// A snapshot and the key that it is kept under.
#[derive(Debug, Clone)]
pub struct KeptSnapshot {
    pub key: String,
    pub snapshot: SnapshotInfo,
    pub created_at: Timestamp,
    pub used_at: Timestamp,
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

    /// All that a workspace keeps, the one that was not used for longest first.
    pub fn list_kept(&self, workspace: &str) -> Result<Vec<KeptSnapshot>, StoreError> {
        let mut kept = Vec::new();
        for row in self.store.kept_snapshots_of(workspace)? {
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

    /// How many bytes all snapshots of a workspace take.
    pub fn stored_bytes(&self, workspace: &str) -> Result<u64, StoreError> {
        self.store.snapshot_bytes(workspace)
    }
}
