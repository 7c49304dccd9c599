//! What the engine's tables hold about a workspace as a whole.

use rusqlite::Transaction;

/// Deletes a workspace's secrets, credentials, network defaults and cached snapshots, in the transaction that deletes the workspace itself.
pub fn forget_workspace(transaction: &Transaction<'_>, workspace: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM secrets WHERE workspace = ?1", [workspace])?;
    transaction.execute("DELETE FROM network_defaults WHERE workspace = ?1", [workspace])?;
    transaction.execute("DELETE FROM registry_credentials WHERE workspace = ?1", [workspace])?;
    transaction.execute("DELETE FROM image_references WHERE workspace = ?1", [workspace])?;
    transaction.execute("DELETE FROM kept_snapshots WHERE workspace = ?1", [workspace])?;
    Ok(())
}
