//! Rows of quotas that were set.

use rusqlite::params;
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::Query;

use super::quota::Quota;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

impl Store {
    pub(crate) fn quota(&self, workspace: &WorkspaceName) -> Result<Option<Quota>, StoreError> {
        self.connection().find("SELECT * FROM quotas WHERE workspace = ?1", [workspace.as_str()], |row| {
            Ok(Quota {
                sandboxes: row.get("sandboxes")?,
                vcpus: row.get("vcpus")?,
                memory_mib: row.get("memory_mib")?,
                disk_mib: row.get("disk_mib")?,
                creates_per_minute: row.get("creates_per_minute")?,
                requests_per_second: row.get("requests_per_second")?,
                open_requests: row.get("open_requests")?,
            })
        })
    }

    pub(crate) fn remove_quota(&self, workspace: &WorkspaceName) -> Result<(), StoreError> {
        self.connection().run("DELETE FROM quotas WHERE workspace = ?1", [workspace.as_str()]).map(drop)
    }

    /// Returns false if there is no such workspace.
    pub(crate) fn set_quota(&self, workspace: &WorkspaceName, quota: &Quota) -> Result<bool, StoreError> {
        self.connection().run(
            "INSERT OR REPLACE INTO quotas (workspace, sandboxes, vcpus, memory_mib, disk_mib, creates_per_minute, \
             requests_per_second, open_requests) SELECT name, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM workspaces \
             WHERE name = ?1 AND deleted_ms IS NULL",
            params![
                workspace.as_str(),
                quota.sandboxes,
                quota.vcpus,
                quota.memory_mib,
                quota.disk_mib,
                quota.creates_per_minute,
                quota.requests_per_second,
                quota.open_requests,
            ],
        )
    }
}
