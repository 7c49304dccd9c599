//! What a server decides and remembers around sandboxes: who may do what, how much of it, and what was done.
//!
//! This crate handles neither HTTP nor virtual machines. It has its own tables in the home's SQLite file, through a
//! connection of its own.
//!
//! What always holds:
//! - A [`Principal`] belongs to one workspace and sees objects of that workspace only, whatever its [`Scope`].
//! - Rights come from a token's scope, never from the name of its workspace.
//! - A quota is checked before anything is made, and simultaneous requests cannot share the last free place.
//! - A request with an idempotency key runs at most once, even if the process dies in the middle of it.

mod access;
mod admission;
mod audit;
mod builds;
#[cfg(test)]
mod golden;
mod idempotency;
mod previews;
mod store;
mod tokens;
mod workspaces;

pub use access::{Access, AccessError, AccessSettings};
pub use admission::{AdmitError, DEFAULT_QUOTA, Quota, QuotaRefused, Reservation, Resource, Resources, check};
pub use audit::{Actor, AuditEntry, AuditQuery, AuditResult, AuditRetention, NewAudit, RECORDING_LIMIT, Recording};
pub use builds::{BuildEnd, BuildRecord};
pub use idempotency::{Begin, BodyHash, IdempotencyKey, KeyRefused, Pending, StoredAnswer};
pub use previews::PreviewError;
pub use tokens::{AuthError, CreatedToken, Denied, NewToken, Principal, Scope, TokenError, TokenInfo, TokenSecret};
pub use workspaces::{Workspace, WorkspaceError, WorkspaceName};
