//! Sandboxes whose row or whose machine's record cannot be read. They are listed as such, left alone with all they may own,
//! and removed only on request.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use serde_json::json;

use super::instance::Engine;
use crate::machine::remove_leftover;
use crate::model::{DEFAULT_WORKSPACE, SandboxId, SandboxInfo, State};
use crate::store::{StoreError, UnreadableSandbox};

impl Engine {
    pub(super) fn unreadable(&self) -> MutexGuard<'_, BTreeMap<SandboxId, SandboxInfo>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a row that cannot be read for lists, and names it in the log.
    pub(crate) fn set_aside(&self, row: UnreadableSandbox) {
        let name = row.id.as_ref().map_or("unknown", SandboxId::as_str);
        tracing::error!(
            sandbox = name,
            why = row.why,
            "the row of this sandbox cannot be read; all it may own is kept"
        );
        let Some(id) = row.id.clone() else { return };
        let named = row.detail["workspace"].as_str().map(str::to_owned);
        let workspace = named.or_else(|| self.parts.store.workspace_of_events(id.as_str()).ok().flatten());
        match placeholder_info(&id, workspace.as_deref().unwrap_or(DEFAULT_WORKSPACE), &row) {
            Ok(info) => drop(self.unreadable().insert(id, info)),
            Err(error) => tracing::error!(sandbox = %id, %error, "it is missing in lists"),
        }
    }

    /// Keeps a sandbox whose machine cannot be found, because the machine's record cannot be read. The machine may still
    /// run; it ends at its own deadline.
    pub(super) fn set_aside_machine(&self, info: SandboxInfo, error: &(dyn std::error::Error + 'static)) {
        tracing::error!(sandbox = %info.id, error, "the record of this sandbox's machine cannot be read; the sandbox is kept");
        self.unreadable().insert(info.id.clone(), SandboxInfo { state: State::Unreadable, ..info });
    }

    /// The sandboxes of a workspace whose rows cannot be read, in the state [`State::Unreadable`].
    pub fn unreadable_of(&self, workspace: &str) -> Vec<SandboxInfo> {
        self.unreadable().values().filter(|info| info.workspace == workspace).cloned().collect()
    }

    /// The one of this id.
    pub fn find_unreadable(&self, workspace: &str, id: &SandboxId) -> Option<SandboxInfo> {
        self.unreadable().get(id).filter(|info| info.workspace == workspace).cloned()
    }

    /// Ends a sandbox whose row cannot be read, for good: its machine, its files, its row. False when there is none.
    pub async fn remove_unreadable(&self, workspace: &str, id: &SandboxId) -> Result<bool, StoreError> {
        if self.find_unreadable(workspace, id).is_none() {
            return Ok(false);
        }
        remove_leftover(&self.config.home.sandboxes().join(id.as_str())).await;
        let why = "it was asked to end";
        self.parts.store.end_sandbox(id.as_str(), why)?;
        self.unreadable().remove(id);
        self.parts.volumes.drop_private(id)?;
        self.parts.events.record(id, workspace, "ended", json!({ "why": why }))?;
        Ok(true)
    }
}

/// What a list says about it: what its row still tells, and nothing that is only assumed.
fn placeholder_info(id: &SandboxId, workspace: &str, row: &UnreadableSandbox) -> serde_json::Result<SandboxInfo> {
    let text = |field: &str| row.detail[field].as_str().unwrap_or_default();
    let number = |field: &str| row.detail[field].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let no_layer_was_seen = json!({
        "accelerator": "tcg", "user_namespace": false, "mount_namespace": false, "network_namespace": false,
        "pid_namespace": false, "ipc_namespace": false, "unprivileged_user": false, "no_capabilities": false,
        "no_new_privs": false, "seccomp": false, "landlock": "absent", "cgroup": null,
    });
    serde_json::from_value(json!({
        "id": id, "workspace": workspace, "state": State::Unreadable, "created_at": row.created_at,
        "template": text("template"), "image": text("image"), "bake": text("bake"),
        "vcpus": number("vcpus"), "memory_mib": number("memory_mib"), "disk_mib": number("disk_mib"),
        "pids": number("pids"), "boot_mode": "restore", "boot_ms": 0.0, "boundary": no_layer_was_seen,
        "lifetime": { "from": row.created_at, "persistent": true },
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::machine::ENGINE_FILE;
    use crate::store::Store;
    use crate::{EngineConfig, Home};

    /// A home of the first version with one living sandbox, whose row a damage or a newer version made unreadable. Its
    /// directory, a layer and a volume are too old to belong to work in progress.
    fn home(dir: &Path, damage: &str) -> (Home, SandboxId) {
        let home = Home::new(dir.to_owned());
        home.prepare().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
        let connection = rusqlite::Connection::open(home.store()).unwrap();
        connection.execute_batch(&fs::read_to_string(golden.join("store.sql")).unwrap()).unwrap();
        let ids = fs::read_to_string(golden.join("ids")).unwrap();
        let running = ids.lines().find_map(|line| line.strip_prefix("running=")).unwrap();
        let others = "UPDATE sandboxes SET state = 'ended' WHERE id <> ?1";
        connection.execute(others, [running]).unwrap();
        connection.execute(&format!("UPDATE sandboxes SET detail = {damage} WHERE id = ?1"), [running]).unwrap();
        let machine = home.sandboxes().join(running);
        fs::create_dir(&machine).unwrap();
        fs::write(machine.join(ENGINE_FILE), "server-dead").unwrap();
        for layer in [home.snapshots().join("layer"), home.snapshots().join("unknown")] {
            fs::create_dir(&layer).unwrap();
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
            fs::File::open(&layer).unwrap().set_modified(old).unwrap();
        }
        (home, SandboxId::parse(running).unwrap())
    }

    async fn open(home: &Home) -> Arc<Engine> {
        let config = EngineConfig { takeover: true, ..EngineConfig::new(home.clone()).unwrap() };
        let engine = Engine::open(config).await.unwrap();
        engine.settled().await;
        engine
    }

    fn count(home: &Home, sql: &str) -> i64 {
        rusqlite::Connection::open(home.store()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[tokio::test]
    async fn a_sandbox_that_cannot_be_read_keeps_everything_until_it_is_removed() {
        for damage in ["json_set(detail, '$.version', 99)", "'{'", "json_remove(detail, '$.boundary')"] {
            let dir = tempfile::tempdir().unwrap();
            let (home, id) = home(dir.path(), damage);
            let uses = "SELECT count(*) FROM volume_uses";
            let snapshots = "SELECT count(*) FROM snapshots";
            let before = (count(&home, uses), count(&home, snapshots));
            let engine = open(&home).await;
            engine.snapshots().sweep().await.unwrap();
            let listed = engine.list_of("default");
            assert_eq!(
                listed.iter().map(|info| (&info.id, info.state)).collect::<Vec<_>>(),
                [(&id, State::Unreadable)]
            );
            assert_eq!(count(&home, snapshots), before.1, "it may stand on any");
            assert_eq!(count(&home, "SELECT count(*) FROM sandboxes WHERE state <> 'ended'"), 1);
            let own = format!("SELECT count(*) FROM volume_uses WHERE holder = '{id}'");
            assert_eq!(count(&home, &own), 1, "nobody else may write its volume");
            assert!(home.sandboxes().join(id.as_str()).exists());
            assert!(home.snapshots().join("layer").exists());
            assert!(engine.find("default", &id).await.is_none(), "it cannot be used");

            assert!(!engine.remove_unreadable("team", &id).await.unwrap(), "it is another workspace's");
            assert!(engine.remove_unreadable("default", &id).await.unwrap());
            assert!(engine.list_of("default").is_empty());
            assert!(!home.sandboxes().join(id.as_str()).exists());
            assert_eq!(count(&home, &own), 0);
            assert!(Store::open(&home.store()).unwrap().living_sandboxes().unwrap().complete().unwrap().is_empty());
        }
    }
    #[tokio::test]
    async fn a_sandbox_whose_machine_has_an_unreadable_record_is_kept_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (home, id) = home(dir.path(), "detail");
        let machine = home.sandboxes().join(id.as_str());
        fs::write(machine.join("machine.json"), "{").unwrap();
        for _ in 0..2 {
            let engine = open(&home).await;
            let listed = engine.list_of("default");
            assert_eq!(listed.iter().map(|i| (&i.id, i.state)).collect::<Vec<_>>(), [(&id, State::Unreadable)]);
            assert!(machine.exists());
            assert_eq!(count(&home, "SELECT count(*) FROM sandboxes WHERE state <> 'ended'"), 1);
            engine.close().await;
        }
        let engine = open(&home).await;
        assert!(engine.remove_unreadable("default", &id).await.unwrap());
        assert!(!machine.exists() && engine.list_of("default").is_empty());
    }

    #[tokio::test]
    async fn a_snapshot_that_cannot_be_read_can_be_deleted() {
        for damage in ["'{'", "json_set(detail, '$.version', 99)", "CAST(x'7bff7d' AS TEXT)"] {
            let dir = tempfile::tempdir().unwrap();
            let (home, _) = home(dir.path(), "detail");
            let connection = rusqlite::Connection::open(home.store()).unwrap();
            connection.execute("UPDATE sandboxes SET state = 'ended'", []).unwrap();
            connection.execute("DELETE FROM snapshot_templates", []).unwrap();
            let listed = "SELECT id FROM snapshots WHERE listed AND workspace = 'default' LIMIT 1";
            let id: String = connection.query_row(listed, [], |row| row.get(0)).unwrap();
            connection.execute(&format!("UPDATE snapshots SET detail = {damage} WHERE id = ?1"), [&id]).unwrap();
            let files = home.snapshots().join(&id);
            fs::create_dir(&files).unwrap();
            let engine = open(&home).await;
            let id = crate::SnapshotId::parse(&id).unwrap();
            assert!(engine.snapshots().delete("team", &id).await.is_err(), "it is another workspace's");
            assert!(files.exists());
            engine.snapshots().delete("default", &id).await.unwrap();
            assert!(!files.exists());
            assert!(engine.snapshots().delete("default", &id).await.is_err(), "it is gone");
            assert!(Store::open(&home.store()).unwrap().all_snapshots().unwrap().is_some(), "sweeps work again");
        }
    }
}
