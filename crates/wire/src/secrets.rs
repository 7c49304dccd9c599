//! Secrets, which are never shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A secret to be stored.
// No `Debug`: it would print the value.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Visible ASCII characters.
    #[schema(min_length = 1, max_length = 8192)]
    pub value: String,
    /// Names and `*.name` to which requests may carry it.
    #[schema(min_items = 1, example = json!(["api.example.com"]))]
    pub hosts: Vec<String>,
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecretView {
    pub name: String,
    pub hosts: Vec<String>,
    pub created_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretView>,
}
