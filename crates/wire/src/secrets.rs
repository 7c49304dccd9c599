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
    /// Where in a request the value may be placed: `header NAME`, `header NAME: PREFIX`, `query KEY` or `basic` (the
    /// user or password of basic authentication). The default is `header Authorization: Bearer`. The gateway refuses a
    /// request with the placeholder anywhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 16, example = json!(["header x-api-key", "query key"]))]
    pub placements: Option<Vec<String>>,
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecretView {
    pub name: String,
    pub hosts: Vec<String>,
    /// Where in a request the value may be placed. `any header` is for secrets that a version without placements stored.
    pub placements: Vec<String>,
    pub created_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretView>,
}
