//! Rows of volumes, and of the claims on them.

use rusqlite::{Connection, TransactionBehavior, params, params_from_iter};

use super::rows::{Query, lossy};
use super::{Store, StoreError};
use crate::model::{VolumeId, VolumeInfo};

/// A claim on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub volume: String,
    pub holder: String,
    pub engine: String,
    pub writes: bool,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Granted,
    /// Another holder's claim does not allow this.
    HeldBy(String),
    Gone,
}

impl Store {
    /// Returns false if the name is taken.
    pub fn insert_volume(&self, info: &VolumeInfo) -> Result<bool, StoreError> {
        self.connection().run(
            "INSERT INTO volumes (id, workspace, name, created_ms, detail) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT DO NOTHING",
            params![
                info.id.as_str(),
                info.workspace,
                info.is_private().is_none().then_some(info.name.as_str()),
                info.created_at.as_millisecond(),
                serde_json::to_string(info)?
            ],
        )
    }

    pub fn update_volume(&self, info: &VolumeInfo) -> Result<(), StoreError> {
        self.connection()
            .run(
                "UPDATE volumes SET detail = ?2 WHERE id = ?1",
                params![info.id.as_str(), serde_json::to_string(info)?],
            )
            .map(drop)
    }

    pub fn volume(&self, id: &VolumeId) -> Result<Option<VolumeInfo>, StoreError> {
        self.find_volume("SELECT detail FROM volumes WHERE id = ?1", &[id.as_str()])
    }

    pub fn volume_named(&self, workspace: &str, name: &str) -> Result<Option<VolumeInfo>, StoreError> {
        self.find_volume("SELECT detail FROM volumes WHERE workspace = ?1 AND name = ?2", &[workspace, name])
    }

    fn find_volume(&self, sql: &str, params: &[&str]) -> Result<Option<VolumeInfo>, StoreError> {
        let detail = self.connection().find(sql, params_from_iter(params), |row| row.get::<_, String>(0))?;
        Ok(detail.map(|detail| serde_json::from_str(&detail)).transpose()?)
    }

    /// All volumes that can be read, oldest first. The others are named in the log.
    pub fn volumes(&self) -> Result<Vec<VolumeInfo>, StoreError> {
        let all = "SELECT id, detail FROM volumes ORDER BY created_ms, id";
        let rows = self.connection().all(all, [], |row| Ok((lossy(row, 0)?, lossy(row, 1)?)))?;
        let mut volumes = Vec::new();
        for (id, detail) in rows {
            match serde_json::from_str(&detail) {
                Ok(info) => volumes.push(info),
                Err(error) => tracing::warn!(volume = %id, %error, "the store's row of this volume is unreadable"),
            }
        }
        Ok(volumes)
    }

    /// Ids of all volumes, also of those whose rows cannot be read.
    pub fn volume_ids(&self) -> Result<Vec<String>, StoreError> {
        self.connection().all("SELECT id FROM volumes", [], |row| lossy(row, 0))
    }

    /// Removes a volume that has no holder.
    pub fn remove_volume(&self, id: &VolumeId) -> Result<Claim, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(other) = uses(&transaction, id)?.into_iter().next() {
            return Ok(Claim::HeldBy(other.holder));
        }
        let rows = transaction.execute("DELETE FROM volumes WHERE id = ?1", [id.as_str()])?;
        transaction.commit()?;
        Ok(if rows == 1 { Claim::Granted } else { Claim::Gone })
    }

    /// Adds a claim, if the other claims allow it.
    pub fn claim_volume(&self, id: &VolumeId, holder: &str, engine: &str, writes: bool) -> Result<Claim, StoreError> {
        let mut connection = self.connection();
        // Immediate: of two processes that claim the same volume, one must wait and then see the claim of the other.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.find("SELECT 1 FROM volumes WHERE id = ?1", [id.as_str()], |_| Ok(()))?.is_none() {
            return Ok(Claim::Gone);
        }
        if let Some(other) = uses(&transaction, id)?.into_iter().find(|other| writes || other.writes) {
            return Ok(Claim::HeldBy(other.holder));
        }
        transaction.execute(
            "INSERT INTO volume_uses (volume, holder, engine, writes) VALUES (?1, ?2, ?3, ?4)",
            params![id.as_str(), holder, engine, writes],
        )?;
        transaction.commit()?;
        Ok(Claim::Granted)
    }

    /// Turns a holder's claim into one that only reads.
    pub fn only_read_volume(&self, id: &VolumeId, holder: &str) -> Result<(), StoreError> {
        self.connection()
            .run("UPDATE volume_uses SET writes = 0 WHERE volume = ?1 AND holder = ?2", [id.as_str(), holder])
            .map(drop)
    }

    /// Gives all claims of one holder to another.
    pub fn hand_volumes_over(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.connection().run("UPDATE volume_uses SET holder = ?2 WHERE holder = ?1", [from, to]).map(drop)
    }

    pub fn release_volumes(&self, holder: &str) -> Result<(), StoreError> {
        self.connection().run("DELETE FROM volume_uses WHERE holder = ?1", [holder]).map(drop)
    }

    pub fn volume_uses(&self) -> Result<Vec<Use>, StoreError> {
        self.connection().all("SELECT volume, holder, engine, writes FROM volume_uses", [], read_use)
    }
}

fn uses(connection: &Connection, id: &VolumeId) -> rusqlite::Result<Vec<Use>> {
    // Not `Query::all`: a damaged claim must not be overlooked.
    let mut statement =
        connection.prepare_cached("SELECT volume, holder, engine, writes FROM volume_uses WHERE volume = ?1")?;
    statement.query_map([id.as_str()], read_use)?.collect()
}

fn read_use(row: &rusqlite::Row<'_>) -> rusqlite::Result<Use> {
    Ok(Use { volume: row.get(0)?, holder: row.get(1)?, engine: row.get(2)?, writes: row.get(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_or_many_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let volume = VolumeInfo::example("data");
        assert!(store.insert_volume(&volume).unwrap());
        assert!(!store.insert_volume(&VolumeInfo::example("data")).unwrap(), "the name is taken");
        let claim = |holder: &str, writes| store.claim_volume(&volume.id, holder, "e", writes).unwrap();
        assert_eq!(claim("a", false), Claim::Granted);
        assert_eq!(claim("b", false), Claim::Granted);
        assert!(matches!(claim("c", true), Claim::HeldBy(_)));
        assert!(matches!(store.remove_volume(&volume.id).unwrap(), Claim::HeldBy(_)));
        store.release_volumes("a").unwrap();
        store.release_volumes("b").unwrap();
        assert_eq!(claim("c", true), Claim::Granted);
        assert_eq!(claim("d", false), Claim::HeldBy("c".to_owned()));
        assert_eq!(claim("e", true), Claim::HeldBy("c".to_owned()));
        store.only_read_volume(&volume.id, "c").unwrap();
        assert_eq!(claim("d", false), Claim::Granted);
        for holder in ["c", "d"] {
            store.release_volumes(holder).unwrap();
        }
        assert_eq!(store.remove_volume(&volume.id).unwrap(), Claim::Granted);
        assert_eq!(claim("f", false), Claim::Gone);
    }
}
