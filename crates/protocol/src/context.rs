//! Contexts: live interpreters whose variables last from cell to cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Python,
    Node,
    Bash,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContextSpec {
    /// The host chooses it, by the same rule as an exec's id.
    pub id: String,
    pub language: Language,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub user: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContextInfo {
    pub id: String,
    pub language: Language,
    pub pid: u32,
    /// How many cells it has run.
    pub cells: u64,
    pub busy: bool,
    /// How often its interpreter was replaced: by a restart, a crash, or a deadline that it did not obey.
    pub restarts: u32,
    /// The working directory it was started in.
    #[serde(default)]
    pub cwd: String,
}

/// One cell. The code is the frame's body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellSpec {
    pub context: String,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    pub output_limit: u64,
    /// Environment variables that are set only while this cell runs.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The code is TypeScript, in a context of [`Language::Node`]. A guest that does not know this reports its types as
    /// syntax errors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub typescript: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellReport {
    pub status: CellStatus,
    /// The cell's number in its context, from 1.
    pub number: u64,
    pub error: Option<Traceback>,
    pub duration_ms: u64,
    pub dropped_bytes: u64,
    /// The interpreter ended with the cell; the context has a new one, without the variables.
    pub restarted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    Ok,
    /// The code raised an exception; see the traceback.
    Error,
    Interrupted,
    Timeout,
    OutOfMemory,
    OutputLimit,
    /// The interpreter ended in the middle of the cell.
    Died,
}

/// An exception as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traceback {
    pub name: String,
    pub value: String,
    /// The text that a terminal would show, without colours.
    pub text: String,
}
