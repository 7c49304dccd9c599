//! Our own terminal: raw while somebody works in a sandbox, as it was afterwards.

use std::io;

use rustix::stdio::{stdin, stdout};
use rustix::termios::{self, OptionalActions, Termios};
use sandling_wire::WindowSize;

/// A terminal that passes every key on. Dropped, it is as it was.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    pub fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed ahead is kept.
        termios::tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone cannot be set right.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Whether somebody sits at both ends.
pub fn is_there() -> bool {
    termios::isatty(stdin()) && termios::isatty(stdout())
}

pub fn size() -> WindowSize {
    match termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WindowSize { rows: size.ws_row, cols: size.ws_col },
        _ => WindowSize { rows: 24, cols: 80 },
    }
}

/// Looks for Enter, `~`, `.` among the keys: the way out of a sandbox that no longer answers.
#[derive(Debug)]
pub struct Escape {
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    LineStart,
    Tilde,
    Within,
}

/// Keys to pass on, and whether the way out was among them.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    pub bytes: Vec<u8>,
    pub leave: bool,
}

impl Escape {
    pub fn new() -> Self {
        Self { at: At::LineStart }
    }

    pub fn watch(&mut self, bytes: &[u8]) -> Keys {
        let mut passed = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            match (self.at, byte) {
                (At::LineStart, b'~') => {
                    self.at = At::Tilde;
                    continue;
                }
                (At::Tilde, b'.') => return Keys { bytes: passed, leave: true },
                // Written twice, it is meant once.
                (At::Tilde, b'~') => {}
                (At::Tilde, _) => passed.push(b'~'),
                _ => {}
            }
            passed.push(byte);
            self.at = if matches!(byte, b'\r' | b'\n') { At::LineStart } else { At::Within };
        }
        Keys { bytes: passed, leave: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_way_out_is_found_however_fast_one_types() {
        assert_eq!(typed(&["ls\r~."]), ("ls\r".to_owned(), true));
        assert_eq!(typed(&["~", "."]), (String::new(), true));
    }

    #[test]
    fn other_tildes_are_keys_like_any_other() {
        assert_eq!(typed(&["ls ~.\r"]), ("ls ~.\r".to_owned(), false));
        assert_eq!(typed(&["~/x\r"]), ("~/x\r".to_owned(), false));
        assert_eq!(typed(&["~~.\r"]), ("~.\r".to_owned(), false));
    }
}
