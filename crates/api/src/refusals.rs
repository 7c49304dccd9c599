//! Maps errors of the engine to statuses and codes, each variant by name.

use axum::http::StatusCode;
use sandling_engine::{
    BakeError, ChangeError, CheckpointError, CreateError, DiffError, ForkError, IdentifyError, ImportError, LinkError,
    MakeError, NetworkChangeError, NetworkError, Refused, RunError, SnapshotError, StoreError, TemplateError,
    TimelineError, UseError, VolumeError,
};
use sandling_image::{BuildError, LoadError};
use sandling_protocol::{Failure, FailureKind};
use sandling_service::Busy;

use crate::error::{ApiError, convert_sources};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_disk_full() { no_space("the server's disk is full") } else { Self::internal(&error) }
    }
}

/// In seconds.
const FENCED_FOR: u64 = 5;

/// The public clients retry after this error, so the request must not have had any effect.
pub(crate) fn no_space(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
}

pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotReadyYet => Self::conflict("sandbox_not_ready", refused.to_string()),
            Refused::Paused => Self::conflict("sandbox_paused", refused.to_string()),
            Refused::Hibernated => Self::conflict("sandbox_hibernated", refused.to_string()),
            Refused::NotHibernated => Self::conflict("sandbox_not_hibernated", refused.to_string()),
            Refused::DiskFull => no_space(refused.to_string()),
            Refused::Fenced => Self::new(StatusCode::SERVICE_UNAVAILABLE, "sandbox_fenced", refused.to_string())
                .retry_after(FENCED_FOR),
            Refused::Unreadable => Self::conflict("sandbox_unreadable", refused.to_string()),
            Refused::Ended => Self::new(StatusCode::NOT_FOUND, "sandbox_ended", refused.to_string()),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(refused) => refused.into(),
            ChangeError::Machine(source) => Self::internal(&source),
            ChangeError::Save(error) => error.into(),
            ChangeError::Wake(error) => error.into(),
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<UseError> for ApiError {
    fn from(error: UseError) -> Self {
        match error {
            UseError::Ended(_) => Self::new(StatusCode::NOT_FOUND, "sandbox_ended", error.to_string()),
            UseError::Refused(refused) => refused.into(),
            UseError::Link(error) => error.into(),
        }
    }
}

impl From<LinkError> for ApiError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Failed(failure) => failure.into(),
            LinkError::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
            LinkError::NoAnswer => Self::new(StatusCode::BAD_GATEWAY, "guest_silent", "the guest does not answer"),
            LinkError::Closed(_) => Self::new(StatusCode::BAD_GATEWAY, "guest_died", error.to_string()),
            LinkError::Unexpected | LinkError::Generation(_) => {
                Self::new(StatusCode::BAD_GATEWAY, "guest_confused", error.to_string())
            }
        }
    }
}

/// A failure in the guest is caused by the request or the sandbox, never by the server.
impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let (status, code) = match failure.kind {
            FailureKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            FailureKind::AlreadyExists => (StatusCode::CONFLICT, "already_exists"),
            FailureKind::PermissionDenied => (StatusCode::FORBIDDEN, "permission_denied"),
            FailureKind::NotADirectory => (StatusCode::BAD_REQUEST, "not_a_directory"),
            FailureKind::IsADirectory => (StatusCode::BAD_REQUEST, "is_a_directory"),
            FailureKind::NotEmpty => (StatusCode::CONFLICT, "not_empty"),
            FailureKind::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
            FailureKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
            FailureKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            FailureKind::Busy => (StatusCode::CONFLICT, "busy"),
            FailureKind::Unsupported => (StatusCode::BAD_REQUEST, "unsupported"),
            FailureKind::Refused => (StatusCode::CONFLICT, "refused"),
            FailureKind::Other => (StatusCode::UNPROCESSABLE_ENTITY, "failed"),
        };
        Self::new(status, code, failure.message)
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Use(error) => error.into(),
            RunError::GuestDied(_) => Self::new(StatusCode::BAD_GATEWAY, "guest_died", error.to_string()),
        }
    }
}

/// The error of a command that could not be started. "Not found" refers to the program here, not to the sandbox.
pub(crate) fn not_started(error: RunError) -> ApiError {
    match error {
        RunError::Use(UseError::Link(LinkError::Failed(failure))) if failure.kind == FailureKind::NotFound => {
            ApiError::new(StatusCode::BAD_REQUEST, "cannot_start", failure.message)
        }
        other => other.into(),
    }
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        let message = error.to_string();
        match error {
            CreateError::Template(error) => error.into(),
            CreateError::OutOfRange { what, value, least, most } => {
                Self::bad_request(format!("{} must be between {least} and {most}, not {value}", wire_name(what)))
            }
            CreateError::NoMemory { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", message).retry_after(5)
            }
            CreateError::NameTaken { .. } => Self::conflict("name_taken", message),
            CreateError::NoSnapshot => Self::not_found("snapshot"),
            CreateError::SizeOfSnapshot => {
                Self::bad_request("a sandbox from a snapshot has its size; leave cpu, memory_mb and disk_mb out")
            }
            CreateError::Volume(error) => error.into(),
            CreateError::Restore(error) => Self::conflict("snapshot_unusable", error.to_string()),
            CreateError::NoSpace { .. } => no_space(message),
            CreateError::Make(MakeError::Directory(source)) if is_full(&source) => {
                no_space("the server's disk is full")
            }
            CreateError::Store(error) => error.into(),
            CreateError::Network(error) => error.into(),
            // The host is too busy for the guest to answer in time. The engine has removed the sandbox.
            CreateError::Make(MakeError::Guest(LinkError::NoAnswer))
            | CreateError::Identify(IdentifyError::Guest(LinkError::NoAnswer) | IdentifyError::Clock) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the sandbox was not ready in time");
                Busy.into()
            }
            CreateError::Closing => Self::new(StatusCode::SERVICE_UNAVAILABLE, "closing", message).retry_after(5),
            CreateError::Make(_) | CreateError::Identify(_) | CreateError::GrowDisk(_) => Self::internal(&error),
        }
    }
}

impl From<NetworkError> for ApiError {
    fn from(error: NetworkError) -> Self {
        let message = error.to_string();
        match error {
            NetworkError::NoSecret(_) => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            NetworkError::NameTaken(_) => Self::conflict("name_taken", message),
            NetworkError::GroupFull { .. } => Self::conflict("group_full", message),
            NetworkError::NotRunning => Self::conflict("sandbox_not_running", message),
            NetworkError::Full { .. } => Self::conflict("too_many_secrets", message),
            NetworkError::TooMany { .. }
            | NetworkError::TooLong { .. }
            | NetworkError::TemplateBinds
            | NetworkError::NothingBinds
            | NetworkError::SecretName
            | NetworkError::SecretLength { .. }
            | NetworkError::ReservedName
            | NetworkError::AnyHeader
            | NetworkError::Limit(_)
            | NetworkError::GroupWords
            | NetworkError::Secret(_) => Self::bad_request(message),
            NetworkError::Ended => Self::new(StatusCode::NOT_FOUND, "sandbox_ended", message),
            NetworkError::Store(error) => error.into(),
            NetworkError::Guest(error) => error.into(),
            NetworkError::Install { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "no_authority", message),
            NetworkError::Key(_) | NetworkError::Authority(_) | NetworkError::Machine(_) | NetworkError::Start(_) => {
                Self::internal(&error)
            }
        }
    }
}

impl From<NetworkChangeError> for ApiError {
    fn from(error: NetworkChangeError) -> Self {
        let message = error.to_string();
        match error {
            NetworkChangeError::Refused(error) => error.into(),
            NetworkChangeError::GuestNotTold(untaught) => {
                let why = Self::from(untaught.source).message;
                Self::conflict("guest_not_told", format!("{message}: {why}"))
            }
        }
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Refused(refused) => refused.into(),
            SnapshotError::Volume(error) => error.into(),
            SnapshotError::Unknown => Self::not_found("snapshot"),
            SnapshotError::CutOff => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "cut_off", "the sandbox ended meanwhile").retry_after(1)
            }
            SnapshotError::NotWrittenOut(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "guest_unresponsive", error.to_string())
            }
            SnapshotError::NoKernel(_) => Self::conflict("no_kernel", error.to_string()),
            SnapshotError::Store(error) => error.into(),
            SnapshotError::Files(source) if source.kind() == std::io::ErrorKind::StorageFull => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", "there is no space left for the snapshot")
            }
            SnapshotError::Files(_)
            | SnapshotError::Disk(_)
            | SnapshotError::Freeze(_)
            | SnapshotError::Hostile
            | SnapshotError::Map(_) => Self::internal(&error),
        }
    }
}

impl From<TimelineError> for ApiError {
    fn from(error: TimelineError) -> Self {
        let message = error.to_string();
        match error {
            TimelineError::Unknown(_) | TimelineError::Pruned { .. } => {
                Self::new(StatusCode::NOT_FOUND, "no_such_checkpoint", message)
            }
            TimelineError::NameTaken => Self::conflict("name_taken", message),
            TimelineError::Name => Self::bad_request(message),
            TimelineError::TooManyNames => Self::conflict("too_many_names", message),
        }
    }
}

convert_sources!(CheckpointError { Timeline, Use, Save, Restore, Change });

impl From<DiffError> for ApiError {
    fn from(error: DiffError) -> Self {
        let message = error.to_string();
        match error {
            DiffError::Point(_) => Self::new(StatusCode::NOT_FOUND, "no_such_moment", message),
            DiffError::Strangers => Self::conflict("no_kin", message),
            DiffError::TooMany(_) | DiffError::TooLarge | DiffError::PatchTooLarge(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            DiffError::Path => Self::bad_request(message),
            DiffError::Timeline(error) => error.into(),
            DiffError::Use(error) => error.into(),
            DiffError::Snapshot(error) => error.into(),
            DiffError::Create(error) => error.into(),
            DiffError::Store(error) => error.into(),
        }
    }
}

impl From<VolumeError> for ApiError {
    fn from(error: VolumeError) -> Self {
        let message = error.to_string();
        match error {
            VolumeError::Name
            | VolumeError::Size(_)
            | VolumeError::TooMany
            | VolumeError::OnlyDisk
            | VolumeError::Twice(_)
            | VolumeError::Place(_) => Self::bad_request(message),
            VolumeError::NotSaid => Self::new(StatusCode::BAD_REQUEST, "volumes_not_said", message),
            VolumeError::NoCheckpoints => Self::conflict("volumes_have_no_checkpoints", message),
            VolumeError::Exists(_) => Self::conflict("already_exists", message),
            VolumeError::Unknown(_) => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            VolumeError::InUse { .. } => Self::conflict("volume_in_use", message),
            VolumeError::NeverChanges(_) => Self::conflict("volume_never_changes", message),
            VolumeError::NoSpace { .. } => no_space(message),
            VolumeError::Guest(error) => error.into(),
            VolumeError::Files(source) if is_full(&source) => no_space("the server's disk is full"),
            VolumeError::Store(error) => error.into(),
            VolumeError::Incomplete(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "volume_incomplete", message).retry_after(1)
            }
            VolumeError::CutOff => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "cut_off", "the sandbox ended meanwhile").retry_after(1)
            }
            VolumeError::Machine(_) | VolumeError::Files(_) | VolumeError::FileSystem(_) => Self::internal(&error),
        }
    }
}

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        let message = error.to_string();
        match error {
            ImportError::NotOne | ImportError::Damaged(_) => Self::bad_request(message),
            ImportError::OtherHost { .. } | ImportError::OtherVersion | ImportError::NoImage { .. } => {
                Self::conflict("other_host", message)
            }
            ImportError::Clash => Self::conflict("already_exists", message),
            ImportError::NoSpace { .. } => no_space(message),
            ImportError::Io(source) if is_full(&source) => no_space("the server's disk is full"),
            ImportError::Store(error) => error.into(),
            ImportError::Io(_) => Self::internal(&error),
        }
    }
}

impl From<ForkError> for ApiError {
    fn from(error: ForkError) -> Self {
        match error {
            ForkError::Children(_) => Self::bad_request(error.to_string()),
            ForkError::Use(error) => error.into(),
            ForkError::Checkpoint(error) => error.into(),
            ForkError::Snapshot(error) => error.into(),
            ForkError::Create(error) => error.into(),
        }
    }
}

/// The public names of the engine's size settings.
fn wire_name(what: &str) -> &str {
    match what {
        "vcpus" => "cpu",
        "memory_mib" => "memory_mb",
        "disk_mib" => "disk_mb",
        other => other,
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        let message = error.to_string();
        match error {
            TemplateError::Name(error) => error.into(),
            TemplateError::Load(error) => error.into(),
            TemplateError::Build(error) => error.into(),
            TemplateError::InUse(_) => Self::conflict("template_in_use", message),
            TemplateError::Exists(_) => Self::conflict("already_exists", message),
            TemplateError::Store(error) => error.into(),
            TemplateError::Bake { ref name, ref source } => match &**source {
                BakeError::Damaged(_) => damaged(name),
                BakeError::Files(source) if is_full(source) => no_space("the server's disk is full"),
                _ => Self::internal(&error),
            },
            TemplateError::CutOff => Self::internal(&error),
        }
    }
}

fn damaged(name: &str) -> ApiError {
    ApiError::conflict("template_damaged", format!("template `{name}` is damaged and must be built again"))
}

impl From<LoadError> for ApiError {
    fn from(error: LoadError) -> Self {
        let message = error.to_string();
        match error {
            LoadError::NotBuilt { .. } => Self::conflict("template_not_built", message),
            LoadError::Damaged { name, .. } => damaged(name.as_str()),
            LoadError::DamagedImage { .. }
            | LoadError::TooNew { .. }
            | LoadError::Untrusted(_)
            | LoadError::Io { .. } => Self::internal(&error),
        }
    }
}

impl From<BuildError> for ApiError {
    fn from(error: BuildError) -> Self {
        let message = error.to_string();
        match error {
            BuildError::Recipe(error) => error.into(),
            BuildError::Load(error) => error.into(),
            BuildError::NoSuchPackage { .. } | BuildError::NotInstallable { .. } | BuildError::DiskTooSmall { .. } => {
                Self::bad_request(message)
            }
            BuildError::NoSpace { needed_mib, free_mib, .. } => {
                let message = format!("not enough disk space: {needed_mib} MiB are needed, {free_mib} MiB are free");
                no_space(message)
            }
            BuildError::DiskFull { .. } => no_space("the server's disk is full"),
            BuildError::NoUidMap
            | BuildError::NoKernelPackage { .. }
            | BuildError::NotAKernel { .. }
            | BuildError::NoModule { .. }
            | BuildError::BadModule { .. }
            | BuildError::Tool(_)
            | BuildError::Io { .. } => Self::internal(&error),
        }
    }
}
