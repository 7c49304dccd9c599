//! A command with live input.

use sandling_protocol::TerminalSize;
use sandling_wire::WindowSize;

use super::IntoEngine;

impl IntoEngine for WindowSize {
    type Engine = TerminalSize;

    fn into_engine(self) -> TerminalSize {
        TerminalSize { rows: self.rows.max(1), cols: self.cols.max(1) }
    }
}
