//! Checkpoints, and the way back.

use sandling_engine::{Cause, Checkpoint, Timeline};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointView {
    /// Given once, and never to another.
    number: u64,
    /// One with a name is kept until the name is taken away.
    name: Option<String>,
    at: String,
    /// What was about to happen: `exec`, `cell`, `files`, `rewind`, or `request` if somebody asked for it.
    cause: &'static str,
    /// What was about to be run or changed, cut off.
    text: String,
    /// The checkpoint that the sandbox had come from.
    after: Option<u64>,
    /// What it stores over the one before: memory and disk together.
    size_bytes: u64,
}

impl From<&Checkpoint> for CheckpointView {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            number: checkpoint.number,
            name: checkpoint.name.clone(),
            at: checkpoint.at.to_string(),
            cause: match checkpoint.cause {
                Cause::Exec => "exec",
                Cause::Cell => "cell",
                Cause::Files => "files",
                Cause::Rewind => "rewind",
                Cause::Request => "request",
            },
            text: checkpoint.text.clone(),
            after: checkpoint.after,
            size_bytes: checkpoint.memory_bytes + checkpoint.disk_bytes,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TimelineView {
    /// Oldest first.
    checkpoints: Vec<CheckpointView>,
    /// The checkpoint that the sandbox has come from.
    current: Option<u64>,
    /// How many without a name are kept, if one is made before each step.
    checkpoints_kept: Option<u32>,
}

impl From<Timeline> for TimelineView {
    fn from(timeline: Timeline) -> Self {
        Self {
            checkpoints: timeline.checkpoints().iter().map(CheckpointView::from).collect(),
            current: timeline.current,
            checkpoints_kept: timeline.keep,
        }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointRequest {
    /// With a name it is kept until the name is taken away.
    #[schema(pattern = "^[A-Za-z._-][A-Za-z0-9._-]{0,99}$")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewindRequest {
    /// A checkpoint's number or name.
    #[serde(deserialize_with = "number_or_name")]
    #[schema(value_type = String)]
    pub(crate) to: String,
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

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RewindView {
    pub(crate) id: String,
    /// Where the sandbox is now.
    pub(crate) to: u64,
    /// Where it was: rewind to this to take it back.
    pub(crate) was: Option<u64>,
    pub(crate) status: &'static str,
}
