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
mod agent_runs;
mod audit;
mod builds;
mod cache;
mod carried;
mod create_limiter;
mod decoder;
mod derived_tokens;
#[cfg(test)]
mod fixture;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
#[cfg(test)]
mod golden;
mod idempotency;
mod images;
mod limits;
mod metrics;
mod previews;
mod process_defaults;
mod public_address;
pub mod random;
mod request_limiter;
mod sandboxes;
mod service;
mod shared;
mod shared_settings;
mod store;
mod stored_layers;
mod stored_uploads;
mod tokens;
mod volume_files;
mod webhooks;
mod workspaces;

pub use admission::{
    Admission, AdmitError, Asking, Claim, Claimed, DEFAULT_QUOTA, OtherClaim, OtherHomes, Quota, QuotaRefused,
    Reservation, Resource, Resources, check,
};
pub use agent_runs::{AgentRun, AgentRuns, RunState, TranscriptPart};
pub use audit::{
    Actor, AuditEntry, AuditKind, AuditLog, AuditOpenError, AuditPolicy, AuditQuery, AuditResult, AuditRetention,
    AuditSettings, AuditTarget, AuditUnavailable, BreakCause, ChainBreak, ChainReport, CopyError, Digest, Link,
    NewAudit, RECORDING_LIMIT, Recording, ShipError, verify_copy,
};
pub use builds::{
    Action, BaseError, Build, BuildFailure, BuildSpec, Builds, CacheUse, DockerIgnore, DockerfileBuild,
    DockerfileError, DockerfileOptions, Explain, Level, Line, OnFailure, PackageBuild, PackageError, Packages, Plan,
    PlanDefaults, PlanError, RegisterError, RequirementError, SaveAs, Secrets, Stage, StartError, TemplateSource,
    UploadError, bases_of_dockerfile, check_hash, parse_dockerfile, split_requirements,
};
pub use cache::Freed;
pub use carried::{CarriedError, CarriedService};
pub use create_limiter::{Busy, CreateLimiter};
pub use decoder::Decoder;
pub use derived_tokens::DerivedTokens;
pub use garbage::GarbageCollector;
pub use idempotency::{Begin, BodyHash, Idempotency, IdempotencyKey, KeyRefused, Pending, StoredAnswer};
pub use images::{
    BadSetting, CredentialError, ImageError, ImageSettings, Images, NamedImage, OnStep, PullView, RegistryLogin,
    process_defaults,
};
pub use limits::{InvalidValue, check_env, check_map, parse_mode};
pub use metrics::{History, HistoryQuery, HostResources, MetricHistory, MetricPoint, SeriesInfo, record_metrics};
pub use previews::{PreviewError, PreviewToken, Previews};
pub use process_defaults::{StartDirectory, inherit_process_defaults};
pub use request_limiter::{RequestLimiter, RequestPermit, RequestRefused};
pub use sandboxes::{
    CreateError, ForkError, ReleaseVolumeError, Sandboxes, TemplateSize, UnknownTemplate, find_template, has_template,
    template_size,
};
pub use service::{Service, ServiceError, ServiceSettings};
pub use shared::{SharedToken, SharedWorkspace};
pub use shared_settings::{KnownSetting, Setting, SettingError, SettingStep, SharedSetting, now_ms, setting_step};
pub use tokens::{
    AuthError, CreatedToken, Denied, LocalTokenError, NewToken, Principal, Scope, TokenError, TokenInfo, TokenSecret,
    Tokens,
};
pub use volume_files::{CommandOutput, OpenVolume, OpenVolumeError, VolumeFileError, VolumeFiles};
pub use webhooks::{
    Attempt, BadUrl, CreatedWebhook, DeliveryState, DueDelivery, NewWebhook, Outbox, Signature, Webhook,
    WebhookAddresses, WebhookDelivery, WebhookError, WebhookUrl, Webhooks,
};
pub use workspaces::{Workspace, WorkspaceError, WorkspaceName, Workspaces};
