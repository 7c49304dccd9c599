//! A command with live input.

use serde::{Deserialize, Serialize};

use crate::exec::ExecRequest;

/// The first message of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionStart {
    pub run: ExecRequest,
    /// Present: the command gets a terminal of this size.
    pub terminal: Option<WindowSize>,
    /// The command's stdin is at its end from the start, unless `run` brings some.
    pub closed_stdin: Option<bool>,
    /// Write risky shapes of the code to the sandbox's events. Advice, not a boundary.
    pub scan: Option<bool>,
}

/// What a session's client may say later, beside bytes for stdin.
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
