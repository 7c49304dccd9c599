//! What the nodes of a fleet decide together: who is a member, who owns a sandbox, how a quota is shared, where a sandbox
//! goes, and how a node is drained.
//!
//! The crate knows neither machines nor HTTP between nodes: it asks for both through [`Host`] and [`Peers`]. No server
//! uses it yet.

mod claims;
mod clock;
mod host;
mod ledger;
mod node;
mod permits;
mod placement;
mod records;

pub use clock::{BootClock, Clock};
pub use host::{Ask, CreateRequest, Host, Known, Peers, Presence, Reply, Unreachable};
pub use ledger::{
    Change, Changes, Condition, EtcdLedger, Expect, LeaseId, Ledger, LedgerError, ModelLedger, Outcome, Page, Record,
    Revision, SqliteLedger, Transaction, Write,
};
pub use node::{Node, Settings, end_drain, start_drain};
pub use records::{
    HeldRecord, NodeRecord, QuotaRecord, SANDBOXES, SandboxRecord, SandboxState, encode, quota_key, sandbox_key,
};
