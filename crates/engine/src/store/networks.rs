//! Rows about networks: defaults for new sandboxes, and what names resolved to.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use sandling_network::Pin;

use super::{Store, StoreError};
use crate::network::NetworkDefault;

impl Store {
    /// The default of a workspace, or of one of its templates.
    pub fn network_default(&self, workspace: &str, template: &str) -> Result<Option<NetworkDefault>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT detail FROM network_defaults WHERE workspace = ?1 AND template = ?2")?;
        let detail: Option<String> = statement.query_row([workspace, template], |row| row.get(0)).optional()?;
        Ok(detail.map(|detail| serde_json::from_str(&detail)).transpose()?)
    }

    pub fn put_network_default(
        &self,
        workspace: &str,
        template: &str,
        default: &NetworkDefault,
    ) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO network_defaults (workspace, template, detail) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![workspace, template, serde_json::to_string(default)?])?;
        Ok(())
    }

    pub fn remove_network_default(&self, workspace: &str, template: &str) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached("DELETE FROM network_defaults WHERE workspace = ?1 AND template = ?2")?
            .execute([workspace, template])?;
        Ok(())
    }

    /// Keeps what a sandbox's gateway has pinned.
    pub fn put_pins(&self, sandbox: &str, pins: &[Pin]) -> Result<(), StoreError> {
        // Before the connection is taken: others wait for it.
        let detail = serde_json::to_string(pins)?;
        self.connection()
            .prepare_cached("INSERT OR REPLACE INTO pins (sandbox, pinned_ms, detail) VALUES (?1, ?2, ?3)")?
            .execute(params![sandbox, Timestamp::now().as_millisecond(), detail])?;
        Ok(())
    }

    /// What was pinned for a sandbox and still holds, with the time it has left.
    pub fn pins(&self, sandbox: &str) -> Result<Vec<Pin>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT pinned_ms, detail FROM pins WHERE sandbox = ?1")?;
        let found: Option<(i64, String)> =
            statement.query_row([sandbox], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((pinned_ms, detail)) = found else { return Ok(Vec::new()) };
        let passed = (Timestamp::now().as_millisecond() - pinned_ms).max(0) / 1000;
        let mut pins: Vec<Pin> = serde_json::from_str(&detail)?;
        pins.retain_mut(|pin| {
            pin.seconds = u32::try_from(i64::from(pin.seconds) - passed).unwrap_or(0);
            pin.seconds > 0
        });
        Ok(pins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_lose_the_time_that_passed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let pin = |seconds| Pin { name: "a.com".parse().unwrap(), address: [93, 184, 216, 34].into(), seconds };
        assert!(store.pins("s").unwrap().is_empty());
        store.put_pins("s", &[pin(100), pin(5)]).unwrap();
        store.connection().execute("UPDATE pins SET pinned_ms = pinned_ms - 10000", []).unwrap();
        let left = store.pins("s").unwrap();
        assert_eq!(left.len(), 1);
        assert!((85..=90).contains(&left[0].seconds), "{left:?}");
    }
}
