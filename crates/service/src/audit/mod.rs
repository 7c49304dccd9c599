//! The audit log: every change, who made it, and what came of it.

mod log;
mod rows;

pub(crate) use log::PruneCounters;
pub use log::{Actor, AuditEntry, AuditQuery, AuditResult, AuditRetention, NewAudit, RECORDING_LIMIT, Recording};
