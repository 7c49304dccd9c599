//! What the two processes tell each other, as lines of JSON.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::unpack::{Progress, Summary, UnpackOptions};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub layers: Vec<LayerFd>,
    /// The disk's descriptor.
    pub out: i32,
    pub options: UnpackOptions,
    pub cpu_seconds: u64,
    pub memory_bytes: u64,
}

/// A [`crate::LayerInput`] whose file is an inherited descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LayerFd {
    pub fd: i32,
    pub offset: u64,
    pub length: u64,
    pub media_type: String,
    pub digest: Option<Digest>,
    pub diff_id: Option<Digest>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The process is confined. Each line names a protection that this host does not offer.
    Confined {
        missing: Vec<String>,
    },
    Progress(Progress),
    Done(Summary),
    Failed {
        message: String,
        disk_too_small: bool,
    },
}
