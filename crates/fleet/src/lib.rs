//! What the nodes of a fleet decide together: who is a member, who owns a sandbox, how a quota is shared, where a sandbox
//! goes, and how a node is drained.
//!
//! The crate knows neither machines nor HTTP between nodes. Servers use [`Membership`] and [`assign`]. [`Node`] also decides
//! about ownership, quotas and moves, and asks for machines and other nodes through [`Host`] and [`Peers`]; so far only the
//! simulator runs it.

mod claims;
mod clock;
mod copies;
mod creates;
mod digest;
mod failover;
mod follow;
mod host;
mod join_pass;
mod ledger;
mod membership;
mod moves;
mod node;
pub mod own_etcd;
mod permits;
mod placement;
mod protocol;
mod records;
mod removal;
mod shared;
pub mod store;

pub use claims::Identity;
pub use clock::{BootClock, Clock};
pub use copies::{Copies, has_other_fleet};
pub use creates::{Assigned, assign, is_assigned, release};
pub use failover::{Absences, FailoverPoint, FailoverRecord, Failovers, Held, KnownFailovers, TookOver, Turns};
pub use host::{Ask, CreateRequest, Host, Known, Peers, Presence, Reply, Unreachable};
pub use join_pass::{JoinPass, PassError};
pub use ledger::{
    Change, Changes, Condition, Engine, EtcdLedger, EtcdStatus, Expect, LeaseId, Ledger, LedgerError, ModelLedger,
    Outcome, Page, Record, Revision, SqliteLedger, Transaction, Write,
};
pub use membership::{LeaseSettings, Membership, NoMembersYet};
pub use moves::{MovedRecord, Moves, NotReadYet, Taken, Whereabouts};
pub use node::{Node, Settings, end_drain, start_drain};
pub use placement::Member;
pub use protocol::{Incompatible, Protocol};
pub use records::{
    DrainLeft, DrainProgress, DrainRecord, HeldRecord, MACHINES, NODES, NodeRecord, QuotaRecord, SANDBOXES,
    SandboxRecord, SandboxState, drain_progress_key, encode, node_tag, quota_key, sandbox_key,
};
pub use removal::{is_removed, name_in_use, remove};
pub use shared::SharedRecords;
