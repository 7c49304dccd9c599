//! Registries of images, and pulls from them. No response contains a password.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Credentials for a registry.
// No `Debug`: it would print the password.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRegistry {
    #[schema(min_length = 1, max_length = 256)]
    pub username: String,
    /// A password, or better an access token that may only pull.
    #[schema(min_length = 1, max_length = 16384)]
    pub password: String,
}

/// A registry that the workspace has credentials for.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryView {
    /// `host` or `host:port`; `docker.io` for Docker Hub.
    pub registry: String,
    pub username: String,
    pub created_at: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistryList {
    pub registries: Vec<RegistryView>,
}

/// A pull in progress.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ImagePull {
    /// The image as the request names it.
    pub image: String,
    pub started_at: String,
    /// What happens now, for display.
    pub step: String,
    /// How much of the step is done, if that is known.
    pub done: Option<u64>,
    pub total: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ImagePulls {
    pub pulls: Vec<ImagePull>,
}
