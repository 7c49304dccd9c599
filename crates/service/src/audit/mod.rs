//! The audit log: every change, who made it, and its result. A workspace may also record the code and output of its runs.

mod log;
mod rows;

pub use log::{
    Actor, AuditEntry, AuditLog, AuditQuery, AuditResult, AuditRetention, NewAudit, RECORDING_LIMIT, Recording,
};
