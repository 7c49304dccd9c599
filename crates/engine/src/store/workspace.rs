//! What the engine's tables hold about a workspace as a whole.

use rusqlite::Transaction;

/// Deletes a workspace's secrets and network defaults, in the transaction that deletes the workspace itself.
pub fn forget_workspace(transaction: &Transaction<'_>, workspace: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM secrets WHERE workspace = ?1", [workspace])?;
    transaction.execute("DELETE FROM network_defaults WHERE workspace = ?1", [workspace])?;
    Ok(())
}
