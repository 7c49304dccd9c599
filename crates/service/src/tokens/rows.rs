//! Rows of tokens. They hold a hash of the secret, never the secret.

use jiff::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, parsed, time, time_or_never};

use super::scope::Scope;
use super::token::TokenInfo;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

#[derive(Debug, Clone)]
pub struct TokenRow {
    pub info: TokenInfo,
    pub hash: blake3::Hash,
    pub revoked_at: Option<Timestamp>,
}

impl Store {
    /// Returns false if the prefix is taken or the workspace is gone.
    pub(crate) fn insert_token(&self, token: &TokenInfo, hash: &blake3::Hash) -> Result<bool, StoreError> {
        self.connection().run(
            "INSERT INTO tokens (prefix, hash, name, workspace, scope, created_ms, expires_ms) \
                 SELECT ?1, ?2, ?3, name, ?5, ?6, ?7 FROM workspaces WHERE name = ?4 AND deleted_ms IS NULL \
                 ON CONFLICT (prefix) DO NOTHING",
            params![
                token.prefix,
                hash.as_bytes(),
                token.name,
                token.workspace.as_str(),
                token.scope.as_str(),
                token.created_at.as_millisecond(),
                token.expires_at.map(Timestamp::as_millisecond),
            ],
        )
    }

    /// Returns nothing if the row is damaged, so that a token that cannot be checked is refused.
    pub(crate) fn token(&self, prefix: &str) -> Result<Option<TokenRow>, StoreError> {
        Ok(self.connection().all("SELECT * FROM tokens WHERE prefix = ?1", [prefix], read)?.pop())
    }

    /// The tokens of a workspace that were not revoked, oldest first.
    pub(crate) fn tokens_of(&self, workspace: &WorkspaceName) -> Result<Vec<TokenInfo>, StoreError> {
        let own = "SELECT * FROM tokens WHERE workspace = ?1 AND revoked_ms IS NULL ORDER BY created_ms, prefix";
        Ok(self.connection().all(own, [workspace.as_str()], read)?.into_iter().map(|row| row.info).collect())
    }

    /// The tokens of all workspaces, also those that have ended.
    pub(crate) fn all_tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.connection().all("SELECT * FROM tokens ORDER BY prefix", [], read)
    }

    /// Adds a token of another home unless its prefix is taken or its workspace is missing. A revoked one is added even if the
    /// workspace is deleted. If the token is there and was revoked elsewhere, it is revoked here, too. Returns whether that
    /// revoked it.
    pub(crate) fn merge_token(&self, token: &TokenRow) -> Result<bool, StoreError> {
        let revoked_ms = token.revoked_at.map(Timestamp::as_millisecond);
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let TokenRow { info, hash, .. } = token;
        transaction.run(
            "INSERT INTO tokens (prefix, hash, name, workspace, scope, created_ms, expires_ms, revoked_ms) \
                 SELECT ?1, ?2, ?3, name, ?5, ?6, ?7, ?8 FROM workspaces \
                 WHERE name = ?4 AND (deleted_ms IS NULL OR ?8 IS NOT NULL) ON CONFLICT (prefix) DO NOTHING",
            params![
                info.prefix,
                hash.as_bytes(),
                info.name,
                info.workspace.as_str(),
                info.scope.as_str(),
                info.created_at.as_millisecond(),
                info.expires_at.map(Timestamp::as_millisecond),
                revoked_ms,
            ],
        )?;
        // Homes that have revoked it at different times agree on the first.
        let revoked = transaction.run(
            "UPDATE tokens SET revoked_ms = ?3 WHERE prefix = ?1 AND hash = ?2 AND ifnull(revoked_ms, ?4) > ?3",
            params![info.prefix, hash.as_bytes(), revoked_ms, i64::MAX],
        )?;
        transaction.commit()?;
        Ok(revoked)
    }

    pub(crate) fn count_tokens(&self, workspace: &WorkspaceName) -> Result<u32, StoreError> {
        let count = "SELECT count(*) FROM tokens WHERE workspace = ?1 AND revoked_ms IS NULL";
        Ok(self.connection().find(count, [workspace.as_str()], |row| row.get(0))?.unwrap_or_default())
    }

    pub(crate) fn touch_token(&self, prefix: &str, now: Timestamp) -> Result<(), StoreError> {
        self.connection()
            .run("UPDATE tokens SET last_used_ms = ?2 WHERE prefix = ?1", params![prefix, now.as_millisecond()])
            .map(drop)
    }

    /// Returns false if the workspace has no such token, or it is revoked already.
    pub(crate) fn revoke_token(
        &self,
        workspace: &WorkspaceName,
        prefix: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.connection().run(
            "UPDATE tokens SET revoked_ms = ?3 WHERE workspace = ?1 AND prefix = ?2 AND revoked_ms IS NULL",
            params![workspace.as_str(), prefix, now.as_millisecond()],
        )
    }

    /// Deletes tokens that expired before `then`. A revoked token without an expiry stays: another home that has a copy, or a
    /// restored backup, may still know it as valid.
    pub(crate) fn forget_tokens(&self, then: Timestamp) -> Result<(), StoreError> {
        self.connection().run("DELETE FROM tokens WHERE expires_ms < ?1", [then.as_millisecond()]).map(drop)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let hash: [u8; 32] = row.get("hash")?;
    let info = TokenInfo {
        prefix: row.get("prefix")?,
        name: row.get("name")?,
        workspace: parsed(row, "workspace", WorkspaceName::parse)?,
        scope: parsed(row, "scope", Scope::parse)?,
        created_at: time(row, "created_ms")?,
        expires_at: time_or_never(row, "expires_ms")?,
        last_used_at: time_or_never(row, "last_used_ms")?,
    };
    Ok(TokenRow { info, hash: hash.into(), revoked_at: time_or_never(row, "revoked_ms")? })
}
