//! A command with live input.

use serde::{Deserialize, Serialize};

use crate::exec::ExecRequest;

/// The first message of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionStart {
    pub run: ExecRequest,
    /// If present, the command gets a terminal of this size.
    pub terminal: Option<WindowSize>,
    /// Whether stdin is closed from the start, unless `run` has input.
    pub closed_stdin: Option<bool>,
    /// Write risky patterns in the code to the sandbox's events. This is advice, not a boundary.
    pub scan: Option<bool>,
}

/// A later message of the client; bytes for stdin are binary messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SessionInput {
    pub eof: Option<bool>,
    pub resize: Option<WindowSize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub cols: u16,
}
