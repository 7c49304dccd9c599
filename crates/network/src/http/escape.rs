//! Reads a character that a server has escaped for a URL, JSON, HTML, a programming language or quoted-printable text.

/// How often an escape may itself be escaped, such as `%25252B`.
const MOST_LAYERS: usize = 3;
/// What HTML calls the characters that it escapes. The first is the one that begins every escape.
const ENTITIES: [(&[u8], u8); 8] = [
    (b"amp;", b'&'),
    (b"lt;", b'<'),
    (b"gt;", b'>'),
    (b"quot;", b'"'),
    (b"apos;", b'\''),
    (b"sol;", b'/'),
    (b"plus;", b'+'),
    (b"equals;", b'='),
];
/// Bytes that begin an escape.
pub const INTRODUCERS: [u8; 4] = *b"%=\\&";

/// Whether an escape that begins with `first` can have `second` as its next byte.
pub fn can_continue(first: u8, second: u8) -> bool {
    match first {
        b'%' | b'=' => second.is_ascii_hexdigit(),
        b'\\' => matches!(second, b'0'..=b'7' | b'x' | b'u' | b'U'),
        b'&' => second == b'#' || ENTITIES.iter().any(|(name, _)| name.first() == Some(&second)),
        _ => false,
    }
}

/// The most readings that one escape has: one for each layer, and one for each form of a backslash.
const MOST_READINGS: usize = 8;

/// The readings of one escape.
pub struct Escape<'a> {
    rest: &'a [u8],
    /// More bytes could complete another reading.
    pub unfinished: bool,
    readings: [(u8, u8); MOST_READINGS],
    count: usize,
}

impl Escape<'_> {
    /// Reads the escape that `rest` begins with.
    pub fn read(rest: &[u8]) -> Escape<'_> {
        let mut escape = Escape { rest, unfinished: false, readings: [(0, 0); MOST_READINGS], count: 0 };
        escape.read_all();
        escape
    }

    /// The characters that it may stand for, each with its length.
    pub fn readings(&self) -> &[(u8, u8)] {
        &self.readings[..self.count]
    }

    fn read_all(&mut self) {
        match self.rest {
            [b'%' | b'=', ..] => {
                for layer in 0..=MOST_LAYERS {
                    let at = 1 + 2 * layer;
                    self.number(at, 16, 2..=2, b"");
                    if !self.begins(at, b"25") {
                        break;
                    }
                }
            }
            [b'\\', ..] => {
                self.number(1, 8, 3..=3, b"");
                for (word, digits) in [(&b"x"[..], 2), (&b"u"[..], 4), (&b"U"[..], 8)] {
                    if self.begins(1, word) {
                        self.number(2, 16, digits..=digits, b"");
                    }
                }
                if self.begins(1, b"u{") {
                    self.number(3, 16, 1..=6, b"}");
                }
            }
            [b'&', ..] => {
                for layer in 0..=MOST_LAYERS {
                    let at = 1 + ENTITIES[0].0.len() * layer;
                    let Some(first) = self.rest.get(at).copied() else {
                        self.unfinished = true;
                        break;
                    };
                    for (name, character) in ENTITIES.iter().filter(|(name, _)| name[0] == first) {
                        if self.begins(at, name) {
                            self.add(*character, at + name.len());
                        }
                    }
                    if first == b'#' {
                        self.number(at + 1, 10, 1..=8, b";");
                    }
                    if self.begins(at, b"#x") || self.begins(at, b"#X") {
                        self.number(at + 2, 16, 1..=8, b";");
                    }
                    if !self.begins(at, ENTITIES[0].0) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, character: u8, length: usize) {
        if let (Some(reading), Ok(length)) = (self.readings.get_mut(self.count), length.try_into()) {
            *reading = (character, length);
            self.count += 1;
        }
    }

    /// Whether `word` is at `at`.
    fn begins(&mut self, at: usize, word: &[u8]) -> bool {
        let rest = self.rest.get(at..).unwrap_or_default();
        self.unfinished |= rest.len() < word.len() && word.starts_with(rest);
        rest.starts_with(word)
    }

    /// Reads a character's code at `at`, and the mark that ends it.
    fn number(&mut self, at: usize, radix: u32, digits: std::ops::RangeInclusive<usize>, mark: &[u8]) {
        let rest = self.rest.get(at..).unwrap_or_default();
        let most = rest.len().min(*digits.end());
        let count = rest[..most].iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
        self.unfinished |= count == rest.len() && count < *digits.end();
        let text = std::str::from_utf8(&rest[..count]).unwrap_or_default();
        if !digits.contains(&count) || !(mark.is_empty() || self.begins(at + count, mark)) {
            return;
        }
        if let Ok(code) = u32::from_str_radix(text, radix)
            && let Ok(code) = u8::try_from(code)
        {
            self.add(code, at + count + mark.len());
        }
    }
}
