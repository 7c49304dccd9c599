//! Commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Language;

/// What to run, and its limits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecSpec {
    /// The host chooses it: 1 to 64 characters of `[A-Za-z0-9_-]`.
    pub id: String,
    pub program: Program,
    /// Added to the sandbox's own environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Absent: the user's home directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// A name or a number. Absent: root.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Bytes of output, all parts together; `on_limit` says what happens when there are more.
    pub output_limit: u64,
    #[serde(default)]
    pub on_limit: OnLimit,
    #[serde(default)]
    pub stdin: Stdin,
    /// Present: the command gets a terminal of this size.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A line for `/bin/bash -c`, or `/bin/sh` where there is no bash.
    Shell(String),
    /// A program and its arguments, found through `PATH`.
    Argv(Vec<String>),
    /// A script for an interpreter, a warm one if one is ready. The code is the frame's body.
    Code { language: Language, args: Vec<String> },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// End the command with [`ExitReason::OutputLimit`].
    #[default]
    Kill,
    /// Let it run and keep the newest bytes.
    KeepTail,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Closed,
    /// The stream's `Data`, until `Finish`.
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As a shell reports it: the exit code, or 128 + the signal's number.
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: ExitReason,
    pub duration_ms: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Bytes of output that were not sent.
    pub dropped_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    Exited,
    Signalled,
    /// The agent ended it at its timeout.
    Timeout,
    OutOfMemory,
    /// The agent ended it at its output limit.
    OutputLimit,
    /// The host ended it at its limit of CPU time. Agents do not send this.
    CpuLimit,
    /// The host ended it at its limit of disk space. Agents do not send this.
    DiskLimit,
}

impl ExitReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::OutputLimit => "output_limit",
            Self::CpuLimit => "cpu_limit",
            Self::DiskLimit => "disk_limit",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecInfo {
    pub id: String,
    pub pid: u32,
    /// The command for display, cut to 200 characters.
    pub command: String,
    pub started_unix_ms: u64,
    /// Bytes of output so far, all parts together.
    pub output_bytes: u64,
    pub state: ExecState,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Exited(Exit),
}
