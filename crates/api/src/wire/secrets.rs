//! Secrets, which are never shown.

use sandling_engine::network::SecretInfo;
use sandling_network::policy::Entry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::network::BadNetwork;

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

impl SetSecret {
    pub(crate) fn hosts(&self) -> Result<Vec<Entry>, BadNetwork> {
        Ok(self.hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?)
    }
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecretView {
    name: String,
    hosts: Vec<String>,
    created_at: String,
}

impl From<SecretInfo> for SecretView {
    fn from(info: SecretInfo) -> Self {
        Self {
            name: info.name,
            hosts: info.hosts.iter().map(ToString::to_string).collect(),
            created_at: info.created_at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretView>,
}
