//! The ledger holds only what two nodes must agree on, and orders every change of it.

mod definition;
mod engine;
mod etcd;
mod model;
mod sqlite;

pub use definition::{
    Change, Changes, Condition, Expect, LeaseId, Ledger, LedgerError, Outcome, Page, Record, Revision, Transaction,
    Write,
};
pub use engine::Engine;
pub(crate) use engine::is_of_same_engine;
pub use etcd::{EtcdLedger, EtcdStatus};
pub use model::ModelLedger;
pub use sqlite::SqliteLedger;
