//! Splits the bytes of the fuzzer into the parts of an input.

/// Takes values from the front of an input. An input that is too short gives zeros and empty parts.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    pub fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The bytes up to the next line of `--`, without it.
    pub fn section(&mut self) -> &'a [u8] {
        const MARK: &[u8] = b"\n--\n";
        match self.0.windows(MARK.len()).position(|window| window == MARK) {
            Some(at) => {
                let (section, rest) = self.0.split_at(at);
                self.0 = &rest[MARK.len()..];
                section
            }
            None => std::mem::take(&mut self.0),
        }
    }

    /// The rest, cut into pieces of at most `size` bytes.
    pub fn pieces(&self, size: u8) -> impl Iterator<Item = &'a [u8]> {
        self.0.chunks(usize::from(size).max(1))
    }
}

/// The text, if the bytes are UTF-8.
pub fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
