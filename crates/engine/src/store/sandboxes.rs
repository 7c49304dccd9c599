//! Rows of sandboxes.

use rusqlite::{Connection, params};

use super::rows::{Query, lossy};
use super::unreadable::read_sandbox;
use super::{LivingSandboxes, Store, StoreError};
use crate::model::{SandboxInfo, read_row, rewrite};

/// How many rows of ended sandboxes are kept, so that clients can ask why they ended.
const KEPT_ENDED: i64 = 10_000;

#[derive(Debug, Clone)]
pub struct SandboxRow {
    pub id: String,
    pub engine: String,
    pub info: SandboxInfo,
}

impl Store {
    /// Writes a sandbox that is about to be handed out.
    pub fn insert_sandbox(&self, engine: &str, info: &SandboxInfo) -> Result<(), StoreError> {
        self.connection()
            .run(
                "INSERT INTO sandboxes (id, engine, state, created_ms, detail) VALUES (?1, ?2, 'running', ?3, ?4)",
                params![info.id.as_str(), engine, info.created_at.as_millisecond(), serde_json::to_string(info)?],
            )
            .map(drop)
    }

    /// Writes the row of a sandbox that comes from another home, unless this home has it already.
    pub fn adopt_sandbox(&self, engine: &str, info: &SandboxInfo) -> Result<(), StoreError> {
        let detail = serde_json::to_string(info)?;
        let insert = "INSERT OR IGNORE INTO sandboxes (id, engine, state, created_ms, detail) \
             VALUES (?1, ?2, 'running', ?3, ?4)";
        let row = params![info.id.as_str(), engine, info.created_at.as_millisecond(), detail];
        self.lastingly(|connection| connection.run(insert, row)).map(drop)
    }

    /// Deletes all rows of a sandbox that belongs to another home, or was refused here.
    pub fn forget_sandbox(&self, id: &str) -> Result<(), StoreError> {
        self.lastingly(|connection| {
            connection.run("DELETE FROM authorities WHERE sandbox = ?1", [id])?;
            connection.run("DELETE FROM pins WHERE sandbox = ?1", [id])?;
            connection.run("DELETE FROM sandboxes WHERE id = ?1", [id]).map(drop)
        })
    }

    /// The row of a living sandbox.
    pub fn living_sandbox(&self, id: &str) -> Result<Option<SandboxInfo>, StoreError> {
        let living = "SELECT detail FROM sandboxes WHERE id = ?1 AND state <> 'ended'";
        let detail = self.connection().find(living, [id], |row| lossy(row, 0))?;
        Ok(detail.map(|detail| read_row(&detail)).transpose()?)
    }

    /// Updates the row of a living sandbox.
    pub fn update_sandbox(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        update(&self.connection(), info)
    }

    /// The same, for changes that must survive a failure of the host.
    pub fn update_sandbox_lastingly(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        self.lastingly(|connection| update(connection, info))
    }

    /// Assigns a sandbox to another engine.
    pub fn give_sandbox(&self, id: &str, engine: &str) -> Result<(), StoreError> {
        self.connection().run("UPDATE sandboxes SET engine = ?2 WHERE id = ?1", params![id, engine]).map(drop)
    }

    pub fn end_sandbox(&self, id: &str, why: &str) -> Result<(), StoreError> {
        self.connection().run(
            "UPDATE sandboxes SET state = 'ended', ended_ms = ?2, ended_why = ?3 WHERE id = ?1 AND state <> 'ended'",
            params![id, jiff::Timestamp::now().as_millisecond(), why],
        )?;
        self.connection().run("DELETE FROM authorities WHERE sandbox = ?1", [id])?;
        self.connection().run("DELETE FROM pins WHERE sandbox = ?1", [id])?;
        self.connection().run("DELETE FROM volume_uses WHERE holder = ?1", [id])?;
        let too_many = "DELETE FROM sandboxes WHERE state = 'ended' AND id IN (SELECT id FROM sandboxes \
             WHERE state = 'ended' ORDER BY ended_ms DESC LIMIT -1 OFFSET ?1)";
        self.connection().run(too_many, [KEPT_ENDED]).map(drop)
    }

    /// The parent of a sandbox, ended or not, as long as its row is kept.
    pub fn parent_of(&self, id: &str) -> Result<Option<String>, StoreError> {
        let parent = "SELECT CASE WHEN json_valid(detail) THEN json_extract(detail, '$.parent') END FROM sandboxes \
             WHERE id = ?1";
        Ok(self.connection().find(parent, [id], |row| row.get(0))?.flatten())
    }

    /// A sandbox that has ended and why, as long as its row is kept.
    pub fn ended_sandbox(&self, id: &str) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        let ended = "SELECT detail, ended_why FROM sandboxes WHERE id = ?1 AND state = 'ended'";
        let row = self.connection().find(ended, [id], |row| Ok((lossy(row, 0)?, lossy(row, 1)?)))?;
        Ok(row.and_then(|(detail, why)| Some((read_row(&detail).ok()?, why))))
    }

    /// The sandbox of a workspace that had this name or an id with this prefix and ended last, and why.
    pub fn last_ended_sandbox(
        &self,
        workspace: &str,
        named: &str,
    ) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        let ended = "SELECT detail, ended_why FROM sandboxes WHERE state = 'ended' AND json_valid(detail) \
             AND detail ->> '$.workspace' = ?1 \
             AND (detail ->> '$.name' = ?2 OR (length(?2) >= 4 AND substr(id, 1, length(?2)) = lower(?2))) \
             ORDER BY ended_ms DESC LIMIT 1";
        let row = self.connection().find(ended, [workspace, named], |row| Ok((lossy(row, 0)?, lossy(row, 1)?)))?;
        Ok(row.and_then(|(detail, why)| Some((read_row(&detail).ok()?, why))))
    }

    /// Every sandbox that has not ended, whichever engine it belongs to, also if its row cannot be read.
    pub fn living_sandboxes(&self) -> Result<LivingSandboxes, StoreError> {
        let rows = "SELECT id, engine, detail, created_ms FROM sandboxes WHERE state <> 'ended'";
        let mut living = LivingSandboxes::default();
        for row in self.connection().all(rows, [], read_sandbox)? {
            match row {
                Ok(row) => living.readable.push(row),
                Err(row) => living.unreadable.push(row),
            }
        }
        Ok(living)
    }
}

fn update(connection: &Connection, info: &SandboxInfo) -> Result<(), StoreError> {
    let id = info.id.as_str();
    let stored = "SELECT detail FROM sandboxes WHERE id = ?1 AND state <> 'ended'";
    let Some(old) = connection.find(stored, [id], |row| lossy(row, 0))? else { return Ok(()) };
    connection.run("UPDATE sandboxes SET detail = ?2 WHERE id = ?1", params![id, rewrite(&old, info)?]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No text, whatever it is read as.
    const NO_TEXT: &str = "CAST(x'7bff7d' AS TEXT)";

    fn example() -> SandboxInfo {
        let layers = ["user_namespace", "mount_namespace", "network_namespace", "pid_namespace", "ipc_namespace"];
        let further = ["unprivileged_user", "no_capabilities", "no_new_privs", "seccomp"];
        let mut boundary: serde_json::Map<_, _> =
            layers.into_iter().chain(further).map(|name| (name.to_owned(), true.into())).collect();
        boundary.insert("accelerator".to_owned(), "tcg".into());
        boundary.insert("landlock".to_owned(), "full".into());
        serde_json::from_value(serde_json::json!({
            "id": uuid::Uuid::new_v4().to_string(), "template": "base", "image": "", "state": "running", "vcpus": 1,
            "memory_mib": 1, "disk_mib": 1, "pids": 1, "created_at": jiff::Timestamp::now(), "boot_mode": "restore",
            "boot_ms": 1.0, "workspace": "w", "boundary": boundary,
            "lifetime": { "from": jiff::Timestamp::now(), "persistent": false },
        }))
        .unwrap()
    }

    #[test]
    fn a_row_that_cannot_be_read_is_kept_with_all_it_may_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.db");
        let store = Store::open(&path).unwrap();
        let newer = r#"json_set(detail, '$.version', 99)"#;
        let damages =
            [("detail", NO_TEXT), ("detail", "'{}'"), ("detail", newer), ("engine", NO_TEXT), ("id", NO_TEXT)];
        let sandboxes: Vec<SandboxInfo> = (0..=damages.len()).map(|_| example()).collect();
        for info in &sandboxes {
            store.insert_sandbox("e", info).unwrap();
        }
        for ((column, value), info) in damages.iter().zip(&sandboxes) {
            let sql = format!("UPDATE sandboxes SET {column} = {value} WHERE id = ?1");
            assert_eq!(store.connection().execute(&sql, [info.id.as_str()]).unwrap(), 1);
        }
        for _ in 0..2 {
            let living = store.living_sandboxes().unwrap();
            assert_eq!(living.readable.iter().map(|row| &row.id).collect::<Vec<_>>(), [sandboxes[5].id.as_str()]);
            let set_aside: Vec<_> = living.unreadable.iter().map(|row| row.id.as_ref()).collect();
            let expected: Vec<_> = sandboxes[..4].iter().map(|info| Some(&info.id)).chain([None]).collect();
            assert_eq!(set_aside, expected);
            assert!(living.unreadable[2].why.contains("version 99"), "{}", living.unreadable[2].why);
            assert!(living.may_own("any directory, since the id of one row is unknown"));
            assert!(living.complete().is_none());
        }
        let told = super::super::unreadable_rows(&path).unwrap();
        assert_eq!(told.iter().map(|row| row.what).collect::<Vec<_>>(), ["sandbox"; 3], "{told:?}");
    }

    #[test]
    fn an_ended_sandbox_is_found_by_its_name_or_the_start_of_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let [first, second] = [(); 2].map(|()| SandboxInfo { name: Some("web".to_owned()), ..example() });
        for (info, why) in [(&first, "first"), (&second, "second")] {
            store.insert_sandbox("e", info).unwrap();
            assert!(store.last_ended_sandbox("w", info.id.as_str()).unwrap().is_none());
            store.end_sandbox(info.id.as_str(), why).unwrap();
            store.connection().execute("UPDATE sandboxes SET ended_ms = ended_ms - 1000", []).unwrap();
        }
        let why =
            |workspace: &str, named: &str| store.last_ended_sandbox(workspace, named).unwrap().map(|(_, why)| why);
        assert_eq!(why("w", "web").as_deref(), Some("second"));
        assert_eq!(why("w", &first.id.as_str()[..8]).as_deref(), Some("first"));
        assert_eq!(why("other", "web"), None);
        assert_eq!(why("w", ""), None);
        assert_eq!(why("w", "%"), None);
    }

    #[test]
    fn fields_of_a_newer_program_survive_an_update() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        store.insert_sandbox("e", &example()).unwrap();
        let newer = "UPDATE sandboxes SET detail = json_set(detail, '$.colour', 'blue', '$.lifetime.shape', 'round')";
        store.connection().execute(newer, []).unwrap();
        let mut info = store.living_sandboxes().unwrap().readable.remove(0).info;
        info.pids = 7;
        store.update_sandbox(&info).unwrap();
        let sql = "SELECT concat(detail ->> 'colour', detail ->> '$.lifetime.shape', detail ->> 'pids') FROM sandboxes";
        let kept: String = store.connection().query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "blueround7");
    }

    #[test]
    fn an_end_and_its_reason_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let info = example();
        store.insert_sandbox("e", &info).unwrap();
        assert!(store.ended_sandbox(info.id.as_str()).unwrap().is_none());
        store.end_sandbox(info.id.as_str(), "why").unwrap();
        let (ended, why) = store.ended_sandbox(info.id.as_str()).unwrap().unwrap();
        assert_eq!((ended.id, why.as_str()), (info.id, "why"));
    }

    #[test]
    fn a_damaged_event_is_still_listed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        for name in ["first", "second"] {
            store.add_event(name, "default", "created", serde_json::json!({})).unwrap();
        }
        for column in ["kind", "detail"] {
            let sql = format!("UPDATE events SET {column} = {NO_TEXT} WHERE number = (SELECT max(number) FROM events)");
            assert_eq!(store.connection().execute(&sql, []).unwrap(), 1);
        }
        assert_eq!(store.events("default", None, None, 10).unwrap().len(), 2);
    }
}
