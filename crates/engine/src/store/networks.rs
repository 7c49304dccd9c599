//! Rows about networks: defaults of sandboxes, and the saved state of gateways.

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use sandling_network::Pin;
use serde::Deserialize;

use super::rows::Query;
use super::{Store, StoreError};
use crate::model::{NetworkDefault, SavedState, StoredDefault};

/// A stored state. Old rows hold only the pins.
#[derive(Deserialize)]
#[serde(untagged)]
enum Detail {
    Pins(Vec<Pin>),
    SavedState(SavedState),
}

impl Store {
    /// The default of a workspace, or of one of its templates.
    pub fn network_default(&self, workspace: &str, template: &str) -> Result<Option<NetworkDefault>, StoreError> {
        read_default(&self.connection(), workspace, template)
    }

    /// Changes a default in one transaction.
    pub fn change_network_default<E: From<StoreError>>(
        &self,
        workspace: &str,
        template: &str,
        change: impl FnOnce(NetworkDefault) -> Result<NetworkDefault, E>,
    ) -> Result<NetworkDefault, E> {
        let mut connection = self.connection();
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
        let default = change(read_default(&transaction, workspace, template)?.unwrap_or_default())?;
        let detail = serde_json::to_string(&default).map_err(StoreError::from)?;
        let write = "INSERT OR REPLACE INTO network_defaults (workspace, template, detail) VALUES (?1, ?2, ?3)";
        transaction.execute(write, params![workspace, template, detail]).map_err(StoreError::from)?;
        transaction.commit().map_err(StoreError::from)?;
        Ok(default)
    }

    /// All defaults. Fails if one cannot be read.
    pub fn all_network_defaults(&self) -> Result<Vec<StoredDefault>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT workspace, template, detail FROM network_defaults ORDER BY 1, 2")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.map(|row| {
            let (workspace, template, detail): (String, String, String) = row?;
            let template = Some(template).filter(|template| !template.is_empty());
            Ok(StoredDefault { workspace, template, default: serde_json::from_str(&detail)? })
        })
        .collect()
    }

    pub fn remove_network_default(&self, workspace: &str, template: &str) -> Result<(), StoreError> {
        self.connection()
            .run("DELETE FROM network_defaults WHERE workspace = ?1 AND template = ?2", [workspace, template])
            .map(drop)
    }

    /// Stores the state of a sandbox's gateway for the next gateway.
    pub fn save_gateway_state(&self, sandbox: &str, kept: &SavedState) -> Result<(), StoreError> {
        // Before the connection is locked, because others wait for it.
        let detail = serde_json::to_string(kept)?;
        self.connection()
            .run(
                "INSERT OR REPLACE INTO pins (sandbox, pinned_ms, detail) VALUES (?1, ?2, ?3)",
                params![sandbox, Timestamp::now().as_millisecond(), detail],
            )
            .map(drop)
    }

    /// The saved state of a sandbox's gateway. Expired pins are dropped, and the others have their remaining time.
    pub fn gateway_state(&self, sandbox: &str) -> Result<SavedState, StoreError> {
        let stored = "SELECT pinned_ms, detail FROM pins WHERE sandbox = ?1";
        let found = self.connection().find(stored, [sandbox], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((pinned_ms, detail)): Option<(i64, String)> = found else { return Ok(SavedState::default()) };
        let passed = (Timestamp::now().as_millisecond() - pinned_ms).max(0) / 1000;
        let mut kept = match serde_json::from_str(&detail)? {
            Detail::Pins(pins) => SavedState { pins, ..SavedState::default() },
            Detail::SavedState(kept) => kept,
        };
        // Connections end with their gateway.
        kept.counts.connections_open = 0;
        kept.pins.retain_mut(|pin| {
            pin.seconds = u32::try_from(i64::from(pin.seconds) - passed).unwrap_or(0);
            pin.seconds > 0
        });
        Ok(kept)
    }
}

fn read_default(
    connection: &Connection,
    workspace: &str,
    template: &str,
) -> Result<Option<NetworkDefault>, StoreError> {
    let stored = "SELECT detail FROM network_defaults WHERE workspace = ?1 AND template = ?2";
    let detail = connection.find(stored, [workspace, template], |row| row.get::<_, String>(0))?;
    Ok(detail.map(|detail| serde_json::from_str(&detail)).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_lose_the_time_that_passed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let pin = |seconds| Pin { name: "a.com".parse().unwrap(), address: [93, 184, 216, 34].into(), seconds };
        assert_eq!(store.gateway_state("s").unwrap(), SavedState::default());
        let mut kept = SavedState { pins: vec![pin(100), pin(5)], ..SavedState::default() };
        (kept.counts.sent_bytes, kept.counts.connections_open) = (7, 1);
        store.save_gateway_state("s", &kept).unwrap();
        store.connection().execute("UPDATE pins SET pinned_ms = pinned_ms - 10000", []).unwrap();
        let left = store.gateway_state("s").unwrap();
        assert_eq!(left.pins.len(), 1);
        assert!((85..=90).contains(&left.pins[0].seconds), "{left:?}");
        assert_eq!((left.counts.sent_bytes, left.counts.connections_open), (7, 0));
    }

    #[test]
    fn a_row_of_pins_alone_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let detail = r#"[{"name": "a.com", "address": "93.184.216.34", "seconds": 100}]"#;
        let row = params!["s", Timestamp::now().as_millisecond(), detail];
        store.connection().execute("INSERT INTO pins (sandbox, pinned_ms, detail) VALUES (?1, ?2, ?3)", row).unwrap();
        assert_eq!(store.gateway_state("s").unwrap().pins.len(), 1);
    }
}
