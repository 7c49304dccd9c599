//! Secrets. No response contains their values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A secret to store.
// No `Debug`: it would print the value.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Visible ASCII characters.
    #[schema(min_length = 1, max_length = 8192)]
    pub value: String,
    /// Hosts whose requests may contain it: names and `*.name`.
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
