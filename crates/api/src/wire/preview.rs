//! Ports and previews.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortList {
    pub(crate) ports: Vec<PortView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortView {
    pub(crate) port: u16,
    /// Where it can be seen, with a preview token.
    pub(crate) preview_url: String,
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
pub(crate) struct PreviewView {
    /// Opens the preview in a browser: the token is in it.
    pub(crate) url: String,
    /// The same under a path of the API's own address.
    pub(crate) path_url: String,
    pub(crate) token: String,
    /// By which it can be revoked.
    pub(crate) id: String,
    pub(crate) sandbox_id: String,
    pub(crate) port: u16,
    pub(crate) paths: Vec<String>,
    pub(crate) expires_at: String,
}
