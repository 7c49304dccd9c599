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
    /// Where it can be seen, with a preview token.
    pub preview_url: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePreview {
    #[schema(minimum = 1)]
    pub port: u16,
    /// How long the token works: an hour if absent, at most seven days.
    #[schema(minimum = 1, maximum = 604800)]
    pub ttl_seconds: Option<u64>,
    /// Path prefixes it is good for; all if absent.
    pub paths: Option<Vec<String>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewView {
    /// Opens the preview in a browser: the token is in it.
    pub url: String,
    /// The same under a path of the API's own address.
    pub path_url: String,
    pub token: String,
    /// By which it can be revoked.
    pub id: String,
    pub sandbox_id: String,
    pub port: u16,
    pub paths: Vec<String>,
    pub expires_at: String,
}
