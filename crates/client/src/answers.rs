//! The parts of a server's responses that the CLI reads.
//!
//! The types hold only the fields that the CLI uses, so that it also works with servers of other versions. `--json`
//! prints the complete response unchanged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ClientError;

/// Converts a JSON response to a type.
pub fn read<T: DeserializeOwned>(answer: Value) -> Result<T, ClientError> {
    serde_json::from_value(answer).map_err(|error| ClientError::UnexpectedResponse(error.to_string()))
}

/// A field of a JSON response, as text.
pub fn field(answer: &Value, name: &str) -> Result<String, ClientError> {
    match &answer[name] {
        Value::Null => Err(ClientError::UnexpectedResponse(format!("it has no field {name:?}"))),
        Value::String(text) => Ok(text.clone()),
        other => Ok(other.to_string()),
    }
}

/// Parses an event's data.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ClientError> {
    serde_json::from_str(text).map_err(|error| ClientError::UnexpectedResponse(error.to_string()))
}

#[derive(Debug, Deserialize)]
pub struct Sandbox {
    pub id: String,
    pub name: Option<String>,
    pub template: String,
    pub status: String,
    pub cpu: u32,
    pub memory_mb: u32,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Older servers do not send it.
    pub workdir: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Forked {
    pub children: Vec<Sandbox>,
}

#[derive(Debug, Deserialize)]
pub struct Entry {
    pub path: String,
    pub is_dir: bool,
    pub size: u64,
    /// `f`, `d`, `l` or `o`.
    pub mode: String,
    /// The mode bits in octal.
    pub permissions: String,
    pub target: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
pub struct SandboxEvent {
    pub time: Timestamp,
    pub sandbox_id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Value,
}

#[derive(Debug, Deserialize)]
pub struct Port {
    pub port: u16,
    pub preview_url: String,
}

#[derive(Debug, Deserialize)]
pub struct Token {
    pub prefix: String,
    pub name: String,
    pub workspace: String,
    pub scope: String,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub struct Quota {
    pub limits: BTreeMap<String, Option<u64>>,
    pub used: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub struct AuditEntry {
    pub number: i64,
    /// Absent without a fleet.
    pub node: Option<String>,
    pub time: Timestamp,
    pub actor: Actor,
    pub action: String,
    pub object: Option<String>,
    pub result: String,
    pub code: Option<String>,
    pub recorded: bool,
    #[serde(default = "one")]
    pub count: u32,
    pub hash: Option<String>,
}

fn one() -> u32 {
    1
}

/// What the server found in a chain of its audit log.
#[derive(Debug, Deserialize)]
pub struct AuditChain {
    pub workspace: String,
    /// Absent without a fleet.
    pub node: Option<String>,
    pub kind: String,
    pub entries: u64,
    pub without_hash: u64,
    pub pruned: i64,
    pub pruned_hash: String,
    pub last: i64,
    pub broken: Option<AuditBreak>,
}

#[derive(Debug, Deserialize)]
pub struct AuditBreak {
    pub number: i64,
    pub cause: String,
}

#[derive(Debug, Deserialize)]
pub struct Actor {
    pub prefix: String,
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Recording {
    pub code: String,
    pub code_cut: u32,
    pub output: String,
    pub output_cut: u32,
}

#[derive(Debug, Deserialize)]
pub struct Template {
    pub name: String,
    pub description: String,
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    pub size_bytes: u64,
    pub ready: bool,
    /// In a fleet: the nodes that have it.
    pub nodes: Option<Vec<String>>,
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub struct Build {
    pub id: String,
    pub status: String,
    pub error: Option<String>,
    pub bytes: Option<u64>,
    pub sandbox: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Version {
    /// `kvm` or `tcg`.
    pub accelerator: String,
}
