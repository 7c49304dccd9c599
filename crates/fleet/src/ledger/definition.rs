//! What a ledger does: leases, transactions with conditions on several keys, linearizable reads, and changes without
//! gaps. `tests/contract` checks each implementation against this definition.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The position of a change in the ledger's one order of changes. The first change has revision 1 or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub i64);

/// Keys that are written with a lease disappear when nobody has renewed it for its TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Arc<str>,
    pub value: Arc<str>,
    /// The revision that made the key. It changes only if the key is deleted and written anew.
    pub created: Revision,
    /// The revision of the last write.
    pub modified: Revision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub key: String,
    pub expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Modified(Revision),
    Created(Revision),
    /// The key is absent or was created at another revision.
    NotCreated(Revision),
}

impl Expect {
    pub fn holds(self, record: Option<&Record>) -> bool {
        match self {
            Self::Absent => record.is_none(),
            Self::Modified(revision) => record.is_some_and(|record| record.modified == revision),
            Self::Created(revision) => record.is_some_and(|record| record.created == revision),
            Self::NotCreated(revision) => record.is_none_or(|record| record.created != revision),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Without a lease, the key stays until it is deleted, even if it had a lease before.
    Put {
        key: String,
        value: String,
        lease: Option<LeaseId>,
    },
    Delete {
        key: String,
    },
}

impl Write {
    pub fn put(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: None }
    }

    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// All writes happen at one revision if all conditions hold, and none of them otherwise. No key is written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub conditions: Vec<Condition>,
    pub writes: Vec<Write>,
}

impl Transaction {
    #[must_use]
    pub fn when(mut self, key: impl Into<String>, expect: Expect) -> Self {
        self.conditions.push(Condition { key: key.into(), expect });
        self
    }

    #[must_use]
    pub fn then(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Committed(Revision),
    /// The current record of each condition's key, in the order of the conditions.
    Refused(Vec<Option<Record>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub records: Vec<Record>,
    /// The ledger's state that this page shows. `changes` after it continues without a gap.
    pub revision: Revision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Record),
    Deleted { key: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Never empty, in the order of their revisions, and whole revisions only.
    pub changes: Vec<Change>,
    pub until: Revision,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The change may have happened, may still happen, or may not happen.
    #[error("the ledger did not answer: {0}")]
    Unavailable(String),
    #[error("the ledger has forgotten the changes after revision {after}; list the keys again")]
    Compacted { after: i64 },
    #[error("the lease has expired")]
    LeaseGone,
    #[error("the ledger answered something unexpected: {0}")]
    Unexpected(String),
}

pub trait Ledger: Send + Sync {
    fn grant(&self, ttl: Duration) -> impl Future<Output = Result<LeaseId, LedgerError>> + Send;

    /// Starts the TTL of a lease anew, or says `LeaseGone`.
    fn renew(&self, lease: LeaseId) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// Ends a lease and deletes its keys. A lease that is gone is no error.
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// A put with a lease that is gone is `LeaseGone`, and then nothing of the transaction happens.
    fn commit(&self, transaction: Transaction) -> impl Future<Output = Result<Outcome, LedgerError>> + Send;

    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Record>, LedgerError>> + Send;

    /// The first `limit` records with the prefix whose key is greater than `after`, by key.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Page, LedgerError>> + Send;

    /// Waits until there are changes of keys with the prefix after the given revision.
    fn changes(&self, prefix: &str, after: Revision) -> impl Future<Output = Result<Changes, LedgerError>> + Send;

    /// Forgets the changes up to and including the given revision. The records stay.
    fn compact(&self, until: Revision) -> impl Future<Output = Result<(), LedgerError>> + Send;
}

impl<L: Ledger> Ledger for &L {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LedgerError> {
        (**self).grant(ttl).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LedgerError> {
        (**self).renew(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LedgerError> {
        (**self).revoke(lease).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        (**self).commit(transaction).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        (**self).get(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        (**self).list(prefix, after, limit).await
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, LedgerError> {
        (**self).changes(prefix, after).await
    }

    async fn compact(&self, until: Revision) -> Result<(), LedgerError> {
        (**self).compact(until).await
    }
}
