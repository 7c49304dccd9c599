//! Listing and deleting snapshots, and sweeping those that are no longer needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::error::SnapshotError;
use super::files::Files;
use super::snapshots::Snapshots;
use super::work_dir::is_abandoned;
use crate::model::{SnapshotId, SnapshotInfo, Visibility};
use crate::store::StoreError;

/// How many automatic checkpoints of a sandbox have a cached process, which takes far more room than the pages of one.
const CACHED_PROCESSES: usize = 3;
/// No engine waits this long before it goes on writing a snapshot.
const UNFINISHED_FOR: Duration = Duration::from_secs(600);

impl Snapshots {
    /// The snapshots of a workspace, oldest first.
    pub fn list(&self, workspace: &str) -> Result<Vec<SnapshotInfo>, StoreError> {
        let all = self.store.snapshots()?.into_iter();
        Ok(all
            .filter(|(info, visibility)| *visibility == Visibility::Listed && info.workspace == workspace)
            .map(|(i, _)| i)
            .collect())
    }

    /// The snapshots of all workspaces. `None` if a row cannot be read, for callers that must not overlook one.
    pub fn list_all(&self) -> Result<Option<Vec<SnapshotInfo>>, StoreError> {
        let all = self.store.all_snapshots()?;
        let listed = |(info, visibility)| (visibility == Visibility::Listed).then_some(info);
        Ok(all.map(|all| all.into_iter().filter_map(listed).collect()))
    }

    /// A number that grows when this process makes, lists, hides or removes a snapshot. Other processes of the home change
    /// snapshots without it.
    pub fn changes(&self) -> u64 {
        self.store.snapshot_changes()
    }

    /// A snapshot of a workspace. One of another workspace is as good as none.
    pub fn find(&self, workspace: &str, id: &SnapshotId) -> Result<Option<SnapshotInfo>, StoreError> {
        let found = self.store.snapshot(id)?;
        Ok(found
            .filter(|(info, visibility)| *visibility == Visibility::Listed && info.workspace == workspace)
            .map(|(info, _)| info))
    }

    /// What a workspace's snapshots, checkpoints and sleeping sandboxes take on the disk.
    pub fn stored_mib(&self, workspace: &str) -> u64 {
        self.store.snapshot_bytes(workspace).unwrap_or_default().div_ceil(1 << 20)
    }

    /// Deletes a snapshot. What stands on it goes on standing on it, and its files go when nothing does.
    pub async fn delete(&self, workspace: &str, id: &SnapshotId) -> Result<(), SnapshotError> {
        match self.find(workspace, id) {
            Ok(found) => {
                found.ok_or(SnapshotError::Unknown)?;
                self.store.list_snapshot(id, Visibility::Hidden)?;
            }
            Err(error) if error.is_unreadable_row() => self.delete_unreadable(workspace, id)?,
            Err(error) => return Err(error.into()),
        }
        Ok(self.sweep_with(std::slice::from_ref(id)).await?)
    }

    /// Deletes the row of a snapshot that cannot be read. If a sandbox or a template may need the snapshot, its row is only
    /// hidden: a newer version may be able to read it.
    fn delete_unreadable(&self, workspace: &str, id: &SnapshotId) -> Result<(), SnapshotError> {
        if self.store.workspace_of_snapshot(id)?.as_deref() != Some(workspace) {
            return Err(SnapshotError::Unknown);
        }
        let living = self.store.living_sandboxes()?.complete();
        let is_needed = living
            .is_none_or(|living| living.iter().any(|row| row.info.snapshots().any(|needed| needed == id)))
            || self.store.snapshot_templates()?.iter().any(|template| template.snapshot == *id);
        if is_needed {
            self.store.list_snapshot(id, Visibility::Hidden)?;
        } else {
            self.store.remove_snapshot(id)?;
        }
        Ok(())
    }

    /// Removes every hidden snapshot that nothing stands on. If the row of a snapshot or a sandbox cannot be read, it is
    /// unknown what that stands on, and all snapshots stay.
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_with(&[]).await
    }

    /// The same, and of these layers those that nothing stands on any more. The layer of a save that failed has no row
    /// by which it could be found.
    pub(crate) async fn sweep_with(&self, layers: &[SnapshotId]) -> Result<(), StoreError> {
        let _one_at_a_time = self.sweeping.lock().await;
        let Some(all) = self.store.all_snapshots()? else { return Ok(()) };
        // In the order in which something becomes a sandbox: it is held, then it may be an arrival, then it has a row. So
        // nothing is overlooked that changes meanwhile.
        let mut needed: BTreeSet<SnapshotId> = self.held_now();
        let Some(arriving) = self.transits.needs() else { return Ok(()) };
        needed.extend(arriving);
        let Some(living) = self.store.living_sandboxes()?.complete() else { return Ok(()) };
        let all: BTreeMap<_, _> =
            all.into_iter().map(|(info, visibility)| (info.id.clone(), (info, visibility))).collect();
        needed.extend(
            all.values().filter(|(_, visibility)| *visibility == Visibility::Listed).map(|(info, _)| info.id.clone()),
        );
        for row in living {
            needed.extend(row.info.snapshots().cloned());
        }
        needed.extend(self.store.snapshot_templates()?.into_iter().map(|template| template.snapshot));
        needed.extend(self.store.kept_snapshots()?);
        let direct: Vec<_> = needed.iter().filter_map(|id| all.get(id)).collect();
        let below = direct.iter().flat_map(|(info, _)| info.stands_on().cloned()).collect::<Vec<_>>();
        needed.extend(below);
        for layer in layers.iter().filter(|layer| !needed.contains(layer) && !all.contains_key(layer)) {
            self.remove_files_of(layer);
        }
        for (id, (info, _)) in all.iter().filter(|(id, _)| !needed.contains(id)) {
            // The row first: files without a row are swept at the next start, a row without files would be a lie.
            self.store.remove_snapshot(id)?;
            // Layers that came with an import have no row of their own.
            let layers = info.stands_on().filter(|layer| !needed.contains(layer) && !all.contains_key(layer));
            for id in std::iter::once(id).chain(layers) {
                self.remove_files_of(id);
            }
        }
        Ok(())
    }

    fn remove_files_of(&self, id: &SnapshotId) {
        if let Err(error) = fs::remove_dir_all(Files::new(&self.dir, id).dir())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(snapshot = %id, %error, "a snapshot's files could not be removed");
        }
    }

    /// Removes what is no snapshot: halves that a dead engine left. What a living machine's disk stands on stays.
    pub(crate) fn sweep_unfinished(&self) -> Result<(), StoreError> {
        let Some(rows) = self.store.all_snapshots()? else { return Ok(()) };
        let Some(arriving) = self.transits.needs() else { return Ok(()) };
        let Some(living) = self.store.living_sandboxes()?.complete() else { return Ok(()) };
        let named = |(info, _): &(SnapshotInfo, Visibility)| {
            let own = std::iter::once(&info.id).chain(info.stands_on());
            own.map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut known: BTreeSet<String> = rows.iter().flat_map(named).collect();
        for row in living {
            known.extend(row.info.standing.needs().map(ToString::to_string));
        }
        known.extend(arriving.iter().map(ToString::to_string));
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            // Another engine may be writing one at this moment.
            let is_known = known.contains(&*entry.file_name().to_string_lossy());
            if !is_known && is_abandoned(&entry.path(), UNFINISHED_FOR) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    /// Removes the cached processes of these automatic checkpoints, newest first, except the newest few, and sweeps. Does so
    /// in the background.
    pub(crate) fn evict_behind(self: &Arc<Self>, automatic: Vec<SnapshotId>) {
        let snapshots = self.clone();
        tokio::task::spawn_blocking(move || {
            let process_cache = &snapshots.machines.factory.process_cache;
            let cached = automatic.iter().filter(|id| process_cache.has(Files::new(&snapshots.dir, id).dir()));
            for id in cached.skip(CACHED_PROCESSES) {
                if let Err(error) = snapshots.evict_process(id) {
                    tracing::warn!(snapshot = %id, error = &error as &dyn std::error::Error, "could not record that a snapshot lost its cached process");
                }
            }
        });
        self.sweep_behind(Vec::new());
    }

    fn evict_process(&self, id: &SnapshotId) -> Result<(), StoreError> {
        let evicted =
            self.unless_held(id, || self.machines.factory.process_cache.evict(Files::new(&self.dir, id).dir()));
        if evicted == Some(true) { self.store.process_evicted(id) } else { Ok(()) }
    }

    /// Sweeps in the background, as [`sweep_with`](Self::sweep_with) does.
    pub(crate) fn sweep_behind(self: &Arc<Self>, layers: Vec<SnapshotId>) {
        let snapshots = self.clone();
        tokio::spawn(async move {
            if let Err(error) = snapshots.sweep_with(&layers).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "could not sweep snapshots");
            }
        });
    }
}
