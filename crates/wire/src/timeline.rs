//! Checkpoints, and the way back.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct CheckpointView {
    /// Given once, and never to another.
    pub number: u64,
    /// One with a name is kept until the name is taken away.
    pub name: Option<String>,
    pub at: String,
    /// What was about to happen: `exec`, `cell`, `files`, `rewind`, or `request` if somebody asked for it.
    pub cause: &'static str,
    /// What was about to be run or changed, cut off.
    pub text: String,
    /// The checkpoint that the sandbox had come from.
    pub after: Option<u64>,
    /// What it stores over the one before: memory and disk together.
    pub size_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineView {
    /// Oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// The checkpoint that the sandbox has come from.
    pub current: Option<u64>,
    /// How many without a name are kept, if one is made before each step.
    pub checkpoints_kept: Option<u32>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRequest {
    /// With a name it is kept until the name is taken away.
    #[schema(pattern = "^[A-Za-z._-][A-Za-z0-9._-]{0,99}$")]
    pub name: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindRequest {
    /// A checkpoint's number or name.
    #[serde(deserialize_with = "number_or_name")]
    #[schema(value_type = String)]
    pub to: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RewindView {
    pub id: String,
    /// Where the sandbox is now.
    pub to: u64,
    /// Where it was: rewind to this to take it back.
    pub was: Option<u64>,
    pub status: &'static str,
}

fn number_or_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "`to` must be a checkpoint's number or name")]
    enum Which {
        Number(u64),
        Name(String),
    }
    Ok(match Which::deserialize(deserializer)? {
        Which::Number(number) => number.to_string(),
        Which::Name(name) => name,
    })
}
