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

mod admission;
mod audit;
mod builds;
mod create_limiter;
mod decoder;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod golden;
mod idempotency;
mod limits;
mod presence;
mod previews;
mod process_defaults;
pub mod random;
mod request_limiter;
mod sandboxes;
mod service;
mod store;
mod tokens;
mod volume_files;
mod workspaces;

pub use admission::{
    Admission, AdmitError, DEFAULT_QUOTA, Quota, QuotaRefused, Reservation, Resource, Resources, check,
};
pub use audit::{
    Actor, AuditEntry, AuditLog, AuditQuery, AuditResult, AuditRetention, NewAudit, RECORDING_LIMIT, Recording,
};
pub use builds::{
    Action, BaseError, Build, BuildFailure, BuildSpec, Builds, Dockerfile, Explain, Level, Line, Plan, PlanDefaults,
    PlanError, RegisterError, SaveAs, Stage, StartError, TemplateSource, UploadError, check_hash, parse_dockerfile,
};
pub use create_limiter::{Busy, CreateLimiter};
pub use decoder::Decoder;
pub use idempotency::{Begin, BodyHash, Idempotency, IdempotencyKey, KeyRefused, Pending, StoredAnswer};
pub use limits::{InvalidValue, check_env, check_map, parse_mode};
pub use previews::{PreviewError, PreviewToken, Previews};
pub use process_defaults::inherit_process_defaults;
pub use request_limiter::{RequestLimiter, RequestPermit, RequestRefused};
pub use sandboxes::{
    CreateError, ForkError, ReleaseVolumeError, Sandboxes, TemplateSize, UnknownTemplate, find_template, template_size,
};
pub use service::{Service, ServiceError, ServiceSettings};
pub use tokens::{
    AuthError, CreatedToken, Denied, LocalTokenError, NewToken, Principal, Scope, TokenError, TokenInfo, TokenSecret,
    Tokens,
};
pub use volume_files::{CommandOutput, OpenVolume, OpenVolumeError, VolumeFileError, VolumeFiles};
pub use workspaces::{Workspace, WorkspaceError, WorkspaceName, Workspaces};
