//! Maps errors of images and registries to statuses and codes, each variant by name.

use axum::http::StatusCode;
use sandling_oci::JailError;
use sandling_oci::registry::RegistryError;
use sandling_service::{CredentialError, ImageError};

use crate::error::ApiError;
use crate::refusals::{is_full, no_space};

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Reference(_) | ImageError::Archive(_) => Self::bad_request(error.to_string()),
            ImageError::Registry(error) => error.into(),
            ImageError::Unpack { source: JailError::Refused { .. } | JailError::Timeout { .. }, .. }
            | ImageError::TooLarge { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "image_unusable", error.to_string())
            }
            ImageError::Unpack { .. } => Self::internal(&error),
            ImageError::File(source) if is_full(&source) => no_space("the server's disk is full"),
            ImageError::File(_) => Self::internal(&error),
            ImageError::Admit(error) => error.into(),
            ImageError::Template(error) => error.into(),
            ImageError::Store(error) => error.into(),
            ImageError::CutOff => Self::new(StatusCode::SERVICE_UNAVAILABLE, "closing", error.to_string()),
        }
    }
}

/// Each refusal by who can do something about it: the request, the credentials, the operator, or nobody but the registry.
impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let (status, code) = match &error {
            RegistryError::NoSuchImage { .. }
            | RegistryError::NoSuchPlatform { .. }
            | RegistryError::BadImage { .. }
            | RegistryError::NoSuchBlob { .. } => (StatusCode::BAD_REQUEST, "image_unknown"),
            RegistryError::CredentialsNeeded { .. }
            | RegistryError::CredentialsRefused { .. }
            | RegistryError::Denied { .. } => (StatusCode::FORBIDDEN, "image_denied"),
            RegistryError::AddressRefused { .. } | RegistryError::Plaintext { .. } => {
                (StatusCode::FORBIDDEN, "registry_refused")
            }
            RegistryError::RateLimited { retry_after, .. } => {
                let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "registry_busy", error.to_string());
                return match retry_after {
                    Some(wait) => error.retry_after(wait.as_secs().max(1)),
                    None => error,
                };
            }
            RegistryError::Write { error: source, .. } if is_full(source) => {
                return no_space("the server's disk is full");
            }
            RegistryError::Write { .. } | RegistryError::Certificates(_) | RegistryError::BadMirror { .. } => {
                return Self::internal(&error);
            }
            RegistryError::Unreachable { .. }
            | RegistryError::TimedOut { .. }
            | RegistryError::TooSlow { .. }
            | RegistryError::Broken { .. }
            | RegistryError::NotTls { .. }
            | RegistryError::Untrusted { .. }
            | RegistryError::ReferralRefused { .. }
            | RegistryError::Downgrade { .. }
            | RegistryError::TooManyRedirects { .. }
            | RegistryError::BadRedirect { .. }
            | RegistryError::UnknownChallenge { .. }
            | RegistryError::NoToken { .. }
            | RegistryError::ServerError { .. }
            | RegistryError::Strange { .. }
            | RegistryError::TooLarge { .. }
            | RegistryError::WrongSize { .. }
            | RegistryError::WrongDigest { .. } => (StatusCode::BAD_GATEWAY, "registry_failed"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<CredentialError> for ApiError {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::Registry(_)
            | CredentialError::Username
            | CredentialError::Password
            | CredentialError::Refused(_) => Self::bad_request(error.to_string()),
            CredentialError::TooMany => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_registries", error.to_string())
            }
            CredentialError::Key(_) => Self::internal(&error),
            CredentialError::Store(error) => error.into(),
        }
    }
}
