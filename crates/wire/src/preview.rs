//! Ports and previews.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct PortList {
    pub ports: Vec<PortView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PortView {
    pub port: u16,
    /// The address of the preview, which needs a token.
    pub preview_url: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePreview {
    #[schema(minimum = 1)]
    pub port: u16,
    /// How long the token works; one hour if absent, at most seven days.
    #[schema(minimum = 1, maximum = 604800)]
    pub ttl_seconds: Option<u64>,
    /// Path prefixes that the token opens; all if absent.
    pub paths: Option<Vec<String>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewView {
    /// An address for a browser; it contains the token.
    pub url: String,
    /// The same as a path of the API's address.
    pub path_url: String,
    pub token: String,
    /// The id to revoke it by.
    pub id: String,
    pub sandbox_id: String,
    pub port: u16,
    pub paths: Vec<String>,
    pub expires_at: String,
}
