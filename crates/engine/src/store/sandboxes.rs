//! Rows of sandboxes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::lossy;
use super::{Store, StoreError};
use crate::sandbox::SandboxInfo;

/// Ended sandboxes whose rows are kept for those who ask what became of them.
const KEPT_ENDED: i64 = 10_000;

/// Why a sandbox ended whose row cannot be read.
const UNREADABLE: &str = "its row in the store was unreadable";

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
            .prepare_cached(
                "INSERT INTO sandboxes (id, engine, state, created_ms, detail) VALUES (?1, ?2, 'running', ?3, ?4)",
            )?
            .execute(params![
                info.id.as_str(),
                engine,
                info.created_at.as_millisecond(),
                serde_json::to_string(info)?
            ])?;
        Ok(())
    }

    /// Writes down what changed about a sandbox that lives.
    pub fn update_sandbox(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        update(&self.connection(), info)
    }

    /// The same, where an older row would be a lie after the host has failed.
    pub fn update_sandbox_lastingly(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        self.lastingly(|connection| update(connection, info))
    }

    /// Puts a sandbox into another engine's care.
    pub fn give_sandbox(&self, id: &str, engine: &str) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached("UPDATE sandboxes SET engine = ?2 WHERE id = ?1")?
            .execute(params![id, engine])?;
        Ok(())
    }

    pub fn end_sandbox(&self, id: &str, why: &str) -> Result<(), StoreError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let connection = self.connection();
        connection
            .prepare_cached(
                "UPDATE sandboxes SET state = 'ended', ended_ms = ?2, ended_why = ?3 WHERE id = ?1 AND state <> 'ended'",
            )?
            .execute(params![id, now, why])?;
        connection.prepare_cached("DELETE FROM authorities WHERE sandbox = ?1")?.execute([id])?;
        connection.prepare_cached("DELETE FROM pins WHERE sandbox = ?1")?.execute([id])?;
        connection.prepare_cached("DELETE FROM volume_uses WHERE holder = ?1")?.execute([id])?;
        connection
            .prepare_cached(
                "DELETE FROM sandboxes WHERE state = 'ended' AND id IN (SELECT id FROM sandboxes WHERE state = 'ended' \
                 ORDER BY ended_ms DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([KEPT_ENDED])?;
        Ok(())
    }

    /// The parent of a sandbox, ended or not, as long as its row is kept.
    pub fn parent_of(&self, id: &str) -> Result<Option<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT CASE WHEN json_valid(detail) THEN json_extract(detail, '$.parent') END FROM sandboxes WHERE id = ?1",
        )?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?.flatten())
    }

    /// A sandbox that has ended and why, as long as its row is kept.
    pub fn ended_sandbox(&self, id: &str) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT detail, ended_why FROM sandboxes WHERE id = ?1 AND state = 'ended'")?;
        let row = statement.query_row([id], |row| Ok((lossy(row, 0)?, lossy(row, 1)?))).optional()?;
        Ok(row.and_then(|(detail, why)| Some((serde_json::from_str(&detail).ok()?, why))))
    }

    /// Every sandbox that has not ended, whichever engine it belongs to. A row that cannot be read is ended, so
    /// that it hurts nobody, and named in the log and in the sandbox's events.
    pub fn living_sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError> {
        let (good, bad) = {
            let connection = self.connection();
            let mut statement =
                connection.prepare_cached("SELECT id, engine, detail, rowid FROM sandboxes WHERE state <> 'ended'")?;
            let rows = statement.query_map([], read)?.collect::<Result<Vec<_>, _>>()?;
            rows.into_iter().partition::<Vec<_>, _>(Result::is_ok)
        };
        for damaged in bad.into_iter().filter_map(Result::err) {
            self.end_damaged(&damaged)?;
        }
        Ok(good.into_iter().flatten().collect())
    }

    fn end_damaged(&self, row: &Damaged) -> Result<(), StoreError> {
        tracing::warn!(sandbox = %row.id, "the store's row of this sandbox is unreadable; it is ended");
        self.end_sandbox(&row.id, UNREADABLE)?;
        // If not even its name can be read, it was not found by it.
        self.connection()
            .prepare_cached("UPDATE sandboxes SET state = 'ended', ended_why = ?2 WHERE rowid = ?1")?
            .execute(params![row.number, UNREADABLE])?;
        let workspace = match &row.workspace {
            Some(workspace) => Some(workspace.clone()),
            None => self.workspace_of_events(&row.id)?,
        };
        if let Some(workspace) = workspace {
            self.add_event(&row.id, &workspace, "ended", serde_json::json!({ "why": UNREADABLE }))?;
        }
        Ok(())
    }
}

fn update(connection: &Connection, info: &SandboxInfo) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sandboxes SET detail = ?2 WHERE id = ?1 AND state <> 'ended'")?
        .execute(params![info.id.as_str(), serde_json::to_string(info)?])?;
    Ok(())
}

/// What can still be said of a row that cannot be read.
struct Damaged {
    number: i64,
    id: String,
    workspace: Option<String>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Result<SandboxRow, Damaged>> {
    let whole = || -> Option<SandboxRow> {
        let detail: String = row.get(2).ok()?;
        Some(SandboxRow { id: row.get(0).ok()?, engine: row.get(1).ok()?, info: serde_json::from_str(&detail).ok()? })
    };
    match whole() {
        Some(row) => Ok(Ok(row)),
        None => {
            let detail: Option<serde_json::Value> = serde_json::from_str(&lossy(row, 2)?).ok();
            let workspace = detail.and_then(|detail| detail["workspace"].as_str().map(str::to_owned));
            Ok(Err(Damaged { number: row.get(3)?, id: lossy(row, 0)?, workspace }))
        }
    }
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
    fn a_row_that_is_no_text_ends_its_sandbox_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let columns = ["detail", "engine", "id"];
        let sandboxes: Vec<SandboxInfo> = (0..=columns.len()).map(|_| example()).collect();
        for info in &sandboxes {
            store.insert_sandbox("e", info).unwrap();
            store.add_event(info.id.as_str(), "w", "created", serde_json::json!({})).unwrap();
        }
        for (column, info) in columns.iter().zip(&sandboxes) {
            let sql = format!("UPDATE sandboxes SET {column} = {NO_TEXT} WHERE id = ?1");
            assert_eq!(store.connection().execute(&sql, [info.id.as_str()]).unwrap(), 1);
        }
        for _ in 0..2 {
            let living = store.living_sandboxes().unwrap();
            assert_eq!(living.iter().map(|row| &row.id).collect::<Vec<_>>(), [sandboxes[3].id.as_str()]);
        }
        for info in &sandboxes[..2] {
            let events = store.newest_events("w", Some(info.id.as_str()), 10).unwrap();
            assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["created", "ended"]);
            assert_eq!(events[1].detail["why"], UNREADABLE);
        }
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
        assert_eq!(store.newest_events("default", None, 10).unwrap().len(), 2);
    }
}
