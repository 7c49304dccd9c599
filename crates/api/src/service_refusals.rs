//! Maps errors of the service to statuses and codes, each variant by name.

use axum::http::StatusCode;
use sandling_service::{
    AdmitError, AuditUnavailable, AuthError, BaseError, BuildFailure, Busy, CreateError, Denied, ForkError,
    InvalidValue, KeyRefused, OpenVolumeError, PlanError, PreviewError, RegisterError, ReleaseVolumeError,
    RequestRefused, StartError, TokenError, UnknownTemplate, UploadError, VolumeFileError, WebhookError,
    WorkspaceError,
};

use crate::error::{ApiError, convert_mistakes, convert_sources};
use crate::extract::too_slow;
use crate::refusals::{is_full, no_space};

/// The message for clients about a failed build.
pub(crate) fn explain(failure: BuildFailure) -> String {
    ApiError::from(failure).message
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::Url(_) | WebhookError::Type(_) | WebhookError::Types | WebhookError::Description => {
                Self::bad_request(error.to_string())
            }
            WebhookError::TooMany => Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_webhooks", error.to_string()),
            WebhookError::Unknown(_) | WebhookError::UnknownDelivery { .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", error.to_string())
            }
            WebhookError::Key(_) => Self::internal(&error),
            WebhookError::Store(error) => error.into(),
        }
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        let message = error.to_string();
        let code = match error {
            AuthError::Missing => "token_missing",
            AuthError::Malformed => "token_malformed",
            AuthError::Unknown => "token_unknown",
            AuthError::Expired => "token_expired",
            AuthError::Revoked => "token_revoked",
            AuthError::Store(source) => return source.into(),
        };
        Self::new(StatusCode::UNAUTHORIZED, code, message)
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", denied.to_string())
    }
}

/// The public clients retry only if there is a `Retry-After`.
impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Refused(refused) => {
                let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", refused.to_string());
                match refused.retry_after {
                    Some(wait) => error.retry_after(wait.as_secs_f64().ceil().max(1.0) as u64),
                    None => error,
                }
            }
            // The workspace and its token were deleted during the request.
            AdmitError::NoWorkspace(_) => Self::not_found("workspace"),
            AdmitError::Contended => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_contended", error.to_string()).retry_after(1)
            }
            AdmitError::Store(source) => source.into(),
        }
    }
}

impl From<RequestRefused> for ApiError {
    fn from(refused: RequestRefused) -> Self {
        let message = refused.to_string();
        let (code, wait) = match refused {
            RequestRefused::Rate { retry_after, .. } => ("rate_limited", retry_after.as_secs_f64().ceil().max(1.0)),
            RequestRefused::Concurrent { .. } => ("too_many_open_requests", 1.0),
            RequestRefused::Store(source) => return source.into(),
        };
        Self::new(StatusCode::TOO_MANY_REQUESTS, code, message).retry_after(wait as u64)
    }
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::BadName | TokenError::AlreadyExpired => Self::bad_request(error.to_string()),
            TokenError::NoWorkspace(_) => Self::not_found("workspace"),
            TokenError::NotFound(_) => Self::not_found("token"),
            TokenError::TooMany => Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tokens", error.to_string()),
            TokenError::Randomness(_) | TokenError::NoFreePrefix => Self::internal(&error),
            TokenError::Store(source) => source.into(),
        }
    }
}

impl From<WorkspaceError> for ApiError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::BadName => Self::bad_request(error.to_string()),
            WorkspaceError::NotFound(_) => Self::not_found("workspace"),
            WorkspaceError::NameTaken(_) => Self::conflict("name_taken", error.to_string()),
            WorkspaceError::InUse { .. } => Self::conflict("workspace_in_use", error.to_string()),
            WorkspaceError::Permanent(_) => Self::conflict("workspace_permanent", error.to_string()),
            WorkspaceError::Store(source) => source.into(),
        }
    }
}

impl From<KeyRefused> for ApiError {
    fn from(refused: KeyRefused) -> Self {
        let message = refused.to_string();
        let (code, object) = match refused {
            KeyRefused::Mismatch => return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_mismatch", message),
            KeyRefused::InProgress { object } => ("key_in_progress", object),
            KeyRefused::Interrupted { object } => ("key_interrupted", object),
            KeyRefused::NotKept { object, .. } => ("key_answer_not_kept", object),
            KeyRefused::Store(source) => return source.into(),
        };
        let error = Self::conflict(code, message);
        match object {
            Some(object) => error.with("object", object),
            None => error,
        }
    }
}

impl From<PreviewError> for ApiError {
    fn from(error: PreviewError) -> Self {
        match error {
            PreviewError::TooMany => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_preview_tokens", error.to_string())
            }
            PreviewError::Unknown => Self::not_found("preview token"),
            PreviewError::Store(source) => source.into(),
        }
    }
}

impl From<AuditUnavailable> for ApiError {
    /// The client learns that nothing happened. The log has the cause.
    fn from(error: AuditUnavailable) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "an action was refused because it cannot be audited");
        let message = "the audit log cannot be written, and this server refuses what it cannot audit; nothing was done";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", message).retry_after(5)
    }
}

impl From<Busy> for ApiError {
    fn from(busy: Busy) -> Self {
        let seconds = Busy::RETRY_AFTER.as_secs();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", busy.to_string()).retry_after(seconds)
    }
}

impl From<UnknownTemplate> for ApiError {
    /// In a request for a sandbox, a wrong template is a mistake in the request, not a missing resource.
    fn from(error: UnknownTemplate) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "template_unknown", error.to_string())
    }
}

convert_sources! {
    ReleaseVolumeError { Store, End }
    ForkError { Admit, Busy, Engine }
    OpenVolumeError { Volume, Wake, Create, Store }
}
convert_mistakes!(InvalidValue, PlanError);

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Template(error) => error.into(),
            CreateError::NoSnapshot => Self::not_found("snapshot"),
            CreateError::Volume(error) => error.into(),
            CreateError::Admit(error) => error.into(),
            CreateError::Busy(error) => error.into(),
            CreateError::Engine(error) => error.into(),
            CreateError::Store(error) => error.into(),
        }
    }
}

impl From<VolumeFileError> for ApiError {
    fn from(error: VolumeFileError) -> Self {
        match error {
            VolumeFileError::Outside(_) => Self::bad_request(error.to_string()),
            VolumeFileError::Use(error) => error.into(),
            VolumeFileError::Run(error) => error.into(),
            VolumeFileError::Checkpoint(error) => error.into(),
        }
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Plan(error) => error.into(),
            StartError::Begun => Self::conflict("build_begun", error.to_string()),
        }
    }
}

impl From<RegisterError> for ApiError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::TooMany => Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_builds", error.to_string()),
            RegisterError::Size(error) => error.into(),
            RegisterError::Store(error) => error.into(),
        }
    }
}

impl From<BaseError> for ApiError {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Image(error) => error.into(),
            BaseError::Template(error) => error.into(),
            BaseError::Store(error) => error.into(),
        }
    }
}

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::NoWorkspace => Self::not_found("workspace"),
            UploadError::Hash(error) => error.into(),
            UploadError::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
            UploadError::TooSlow => too_slow(),
            UploadError::CutShort => Self::bad_request(error.to_string()),
            UploadError::TooMany => Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", error.to_string()),
            UploadError::Admit(error) => error.into(),
            UploadError::Space(error) => error.into(),
            UploadError::Io(source) if is_full(&source) => no_space("the server's disk is full"),
            UploadError::Io(_) => Self::internal(&error),
        }
    }
}

impl From<BuildFailure> for ApiError {
    fn from(failure: BuildFailure) -> Self {
        match failure {
            BuildFailure::Exit(_)
            | BuildFailure::Warm { .. }
            | BuildFailure::StepTimeout
            | BuildFailure::TooLong
            | BuildFailure::NotReady
            | BuildFailure::NoFiles(_)
            | BuildFailure::NoSource(_)
            | BuildFailure::NoDownloader
            | BuildFailure::NoRoomForStage
            | BuildFailure::NoStage
            | BuildFailure::NoSecret(_) => Self::bad_request(failure.to_string()),
            BuildFailure::Archive(_) => Self::internal(&failure),
            BuildFailure::Upload(error) => error.into(),
            BuildFailure::Image(error) => error.into(),
            BuildFailure::Create(error) => error.into(),
            BuildFailure::Use(error) => error.into(),
            BuildFailure::Run(error) => error.into(),
            BuildFailure::Snapshot(error) => error.into(),
            BuildFailure::Template(error) => error.into(),
            BuildFailure::Store(error) => error.into(),
        }
    }
}
