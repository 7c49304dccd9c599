//! Who owns a sandbox. Every change of a sandbox's record goes through one of these functions.
//!
//! Each transaction carries two fences: the record's last revision, and the epoch of the node that writes.

use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Revision, Transaction, Write};
use crate::records::{SandboxRecord, decode, encode, node_key};

/// A node's name in one epoch. The ledger refuses what a node writes after its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub node: String,
    pub epoch: Revision,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    Done(Revision),
    /// The record is another one than expected.
    Other(SandboxRecord, Revision),
    /// The node's epoch is over.
    Fenced,
}

impl Identity {
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.when(node_key(&self.node), Expect::Created(self.epoch))
    }
}

/// Writes the record if there is none.
pub async fn claim(
    ledger: &impl Ledger,
    me: &Identity,
    key: &str,
    record: &SandboxRecord,
) -> Result<Written, LedgerError> {
    let transaction = Transaction::default().when(key, Expect::Absent).then(Write::put(key, encode(record)));
    write(ledger, me, transaction, record).await
}

/// Writes the record if it is still at the given revision.
pub async fn swap(
    ledger: &impl Ledger,
    me: &Identity,
    key: &str,
    at: Revision,
    record: &SandboxRecord,
) -> Result<Written, LedgerError> {
    let transaction = Transaction::default().when(key, Expect::Modified(at)).then(Write::put(key, encode(record)));
    write(ledger, me, transaction, record).await
}

/// Becomes the owner of a sandbox that never ran, if its owner's epoch is over.
pub async fn take_over(
    ledger: &impl Ledger,
    me: &Identity,
    key: &str,
    (old, at): (&SandboxRecord, Revision),
    record: &SandboxRecord,
) -> Result<Written, LedgerError> {
    let transaction = Transaction::default()
        .when(key, Expect::Modified(at))
        .when(node_key(&old.owner), Expect::NotCreated(Revision(old.epoch)))
        .then(Write::put(key, encode(record)));
    write(ledger, me, transaction, record).await
}

/// Closes the record of a node that is gone, in the name of the fleet.
pub async fn close_for(
    ledger: &impl Ledger,
    me: &Identity,
    key: &str,
    at: Revision,
    record: &SandboxRecord,
) -> Result<Written, LedgerError> {
    let transaction = Transaction::default()
        .when(key, Expect::Modified(at))
        .when(node_key(&record.owner), Expect::Absent)
        .then(Write::put(key, encode(record)));
    write(ledger, me, transaction, record).await
}

async fn write(
    ledger: &impl Ledger,
    me: &Identity,
    transaction: Transaction,
    record: &SandboxRecord,
) -> Result<Written, LedgerError> {
    let current = match ledger.commit(me.fence(transaction)).await? {
        Outcome::Committed(revision) => return Ok(Written::Done(revision)),
        Outcome::Refused(current) => current,
    };
    let found = match current.first() {
        Some(Some(found)) => Some((decode::<SandboxRecord>(found)?, found.modified)),
        _ => None,
    };
    // The fence is the last condition.
    let mine = current.last().is_some_and(|node| Expect::Created(me.epoch).holds(node.as_ref()));
    match found {
        // An earlier attempt of the same write whose answer was lost.
        Some((found, revision)) if found == *record => Ok(Written::Done(revision)),
        Some((found, revision)) if mine => Ok(Written::Other(found, revision)),
        None if mine => Err(LedgerError::Unexpected("the record of a sandbox is missing".to_owned())),
        _ => Ok(Written::Fenced),
    }
}
