//! The local terminal: raw mode and the escape sequence.

use std::io;

use rustix::stdio::{stdin, stdout};
use rustix::termios::{self, OptionalActions, Termios};
use sandling_wire::WindowSize;

/// Raw mode of the terminal. Dropping it restores the previous settings.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    pub fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        // `Drain` keeps input that was typed ahead.
        termios::tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Whether stdin and stdout are terminals.
pub fn is_interactive() -> bool {
    termios::isatty(stdin()) && termios::isatty(stdout())
}

pub fn size() -> WindowSize {
    match termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WindowSize { rows: size.ws_row, cols: size.ws_col },
        _ => WindowSize { rows: 24, cols: 80 },
    }
}

/// Replaces terminal control characters in untrusted text.
pub fn sanitize(text: &str) -> String {
    let show = |character: char| match character {
        '\n' | '\t' => character,
        // Bidirectional control characters can disguise a diff.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '�',
        other if other.is_control() => '�',
        other => other,
    };
    text.replace("\r\n", "\n").chars().map(show).collect()
}

/// Detects the escape sequence Enter, `~`, `.`, which disconnects from a sandbox that does not respond.
#[derive(Debug)]
pub struct Escape {
    state: EscapeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    LineStart,
    Tilde,
    InLine,
}

/// Keys to forward, and whether the escape sequence was among them.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    pub bytes: Vec<u8>,
    pub leave: bool,
}

impl Escape {
    pub fn new() -> Self {
        Self { state: EscapeState::LineStart }
    }

    pub fn watch(&mut self, bytes: &[u8]) -> Keys {
        let mut passed = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            match (self.state, byte) {
                (EscapeState::LineStart, b'~') => {
                    self.state = EscapeState::Tilde;
                    continue;
                }
                (EscapeState::Tilde, b'.') => return Keys { bytes: passed, leave: true },
                // `~~` sends one `~`.
                (EscapeState::Tilde, b'~') => {}
                (EscapeState::Tilde, _) => passed.push(b'~'),
                _ => {}
            }
            passed.push(byte);
            self.state = if matches!(byte, b'\r' | b'\n') { EscapeState::LineStart } else { EscapeState::InLine };
        }
        Keys { bytes: passed, leave: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        assert_eq!(sanitize("a\x1b]0;title\x07b\r\n\tc\u{202e}"), "a�]0;title�b\n\tc�");
    }

    fn typed(pieces: &[&str]) -> (String, bool) {
        let mut escape = Escape::new();
        let (mut passed, mut leave) = (Vec::new(), false);
        for piece in pieces {
            let keys = escape.watch(piece.as_bytes());
            passed.extend(keys.bytes);
            leave |= keys.leave;
        }
        (String::from_utf8(passed).unwrap(), leave)
    }

    #[test]
    fn the_escape_sequence_is_found_in_one_or_several_reads() {
        assert_eq!(typed(&["ls\r~."]), ("ls\r".to_owned(), true));
        assert_eq!(typed(&["~", "."]), (String::new(), true));
    }

    #[test]
    fn other_tildes_are_forwarded() {
        assert_eq!(typed(&["ls ~.\r"]), ("ls ~.\r".to_owned(), false));
        assert_eq!(typed(&["~/x\r"]), ("~/x\r".to_owned(), false));
        assert_eq!(typed(&["~~.\r"]), ("~.\r".to_owned(), false));
    }
}
