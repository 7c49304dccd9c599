//! Checkpoints and rewinds.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct CheckpointView {
    /// Unique in the sandbox.
    pub number: u64,
    /// A checkpoint with a name is kept until the name is removed.
    pub name: Option<String>,
    pub at: String,
    /// The step that followed: `exec`, `cell`, `files` or `rewind`; `request` if a client asked for the checkpoint.
    pub cause: &'static str,
    /// The beginning of what was about to run or change.
    pub text: String,
    /// The checkpoint before it.
    pub after: Option<u64>,
    /// What it adds to the one before: memory and disk.
    pub size_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineView {
    /// Oldest first.
    pub checkpoints: Vec<CheckpointView>,
    /// The last checkpoint before the sandbox's current state.
    pub current: Option<u64>,
    /// How many checkpoints without a name are kept, if one is made before each step.
    pub checkpoints_kept: Option<u32>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRequest {
    /// A checkpoint with a name is kept until the name is removed.
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
    /// The checkpoint that the sandbox is at now.
    pub to: u64,
    /// The checkpoint of the state before; rewind to it to undo.
    pub was: Option<u64>,
    pub status: &'static str,
}

fn number_or_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Which::deserialize(deserializer)?.into())
}

pub(crate) fn optional_number_or_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Which>::deserialize(deserializer)?.map(Into::into))
}

/// A checkpoint, as a request names it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a checkpoint's number or name is needed here")]
enum Which {
    Number(u64),
    Name(String),
}

impl From<Which> for String {
    fn from(which: Which) -> Self {
        match which {
            Which::Number(number) => number.to_string(),
            Which::Name(name) => name,
        }
    }
}
