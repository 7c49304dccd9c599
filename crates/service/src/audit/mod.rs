//! The audit log: every change, who made it, and its result. A workspace may also record the code and output of its runs.

mod chain;
mod entry;
mod log;
mod prune;
mod refusals;
mod rows;
mod ship;
#[cfg(test)]
mod tests;
mod verify;
mod worker;

pub use chain::{BreakCause, ChainBreak};
pub use entry::{
    Actor, AuditEntry, AuditKind, AuditQuery, AuditResult, Digest, Link, NewAudit, RECORDING_LIMIT, Recording,
};
pub use log::{AuditLog, AuditOpenError, AuditPolicy, AuditSettings, AuditUnavailable};
pub use prune::AuditRetention;
pub use ship::{AuditTarget, ShipError};
pub use verify::{ChainReport, CopyError, verify_copy};
