//! Who may do what, how much of it, and what is remembered of it.
//!
//! [`Access`] answers for one home directory: workspaces, tokens, quotas, the audit log, idempotency keys,
//! which preview tokens stand and how builds went. It knows no sandboxes; whoever makes one asks [`Access::admit`] first
//! and says what there already is.
//!
//! What always holds:
//! - a [`Principal`] belongs to one [`WorkspaceName`] and sees objects of that one only, whatever its [`Scope`];
//! - no name means more than another: what a token may do stands in its scope, never in its workspace's name;
//! - a quota is answered before anything is made, and simultaneous requests cannot share the last free place;
//! - a request with an idempotency key runs once, also if the process dies in the middle of it.

mod audit;
mod authenticate;
mod bucket;
mod builds;
mod gate;
mod idempotency;
mod local_token;
mod open;
mod previews;
mod quota;
mod scope;
mod secret;
mod tokens;
mod workspace;

pub use audit::{Actor, AuditEntry, AuditQuery, AuditResult, AuditRetention, NewAudit, RECORDING_LIMIT, Recording};
pub use authenticate::AuthError;
pub use builds::{BuildEnd, BuildRecord};
pub use gate::{AdmitError, Reservation};
pub use idempotency::{Begin, BodyHash, IdempotencyKey, KeyRefused, Pending, StoredAnswer};
pub use open::{Access, AccessError, AccessSettings};
pub use previews::PreviewError;
pub use quota::{DEFAULT_QUOTA, Quota, QuotaRefused, Resource, Resources, check};
pub use sandling_wire::{TOKEN_VARIABLE, local_token_path, read_local_token};
pub use scope::{Denied, Principal, Scope};
pub use secret::TokenSecret;
pub use tokens::{CreatedToken, NewToken, TokenError, TokenInfo};
pub use workspace::{Workspace, WorkspaceError, WorkspaceName};
