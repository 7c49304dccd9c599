//! What to look for in a response: a secret in plain text, in hexadecimal and in base64. [`super::pattern_set`] searches
//! for it. No I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::secret::{Secret, UNMISTAKABLE};

/// Base64 and hexadecimal patterns with fewer digits could match other data by chance.
const FEWEST_DIGITS: usize = 8;
/// A line break is skipped only after this many base64 digits, so that the end of a line is rarely held back.
const DIGITS_BEFORE_BREAK: usize = 3;

/// A text to find, such as the value of a secret.
#[derive(Clone)]
pub struct Pattern {
    characters: Zeroizing<Vec<u8>>,
    kind: Kind,
}

/// How a pattern's characters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Text,
    /// Digits of either alphabet.
    Base64,
    /// Lowercase digits, which also match uppercase ones.
    Hex,
}

impl Pattern {
    /// A text.
    pub fn text(text: &str) -> Pattern {
        Pattern { characters: Zeroizing::new(text.as_bytes().to_vec()), kind: Kind::Text }
    }

    /// A text in base64.
    pub fn base64(digits: &str) -> Pattern {
        Pattern { characters: Zeroizing::new(digits.as_bytes().to_vec()), kind: Kind::Base64 }
    }

    /// The patterns of a secret: its value, in hexadecimal, and inside base64 text.
    pub fn all(secret: &Secret) -> Vec<Pattern> {
        let value = secret.value();
        let hex = Zeroizing::new(value.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
        let hex = Pattern { characters: hex, kind: Kind::Hex };
        // A line break among the first digits hides those before it. The pattern then begins after the break.
        let starts = (0..3).flat_map(|before| (0..DIGITS_BEFORE_BREAK).map(move |skipped| (before, skipped)));
        let base64 = starts.map(|(before, skipped)| {
            let digits = digits_inside(value, before);
            Pattern::base64(digits.get(skipped..).unwrap_or_default())
        });
        let digits = [hex].into_iter().chain(base64).filter(|pattern| pattern.characters.len() >= FEWEST_DIGITS);
        [Pattern::text(value)].into_iter().chain(digits).collect()
    }

    /// Whether a header's name contains it. Names are lowercase.
    pub fn is_in_name(&self, name: &str) -> bool {
        // A short value may be part of any header name.
        let lowercase = Zeroizing::new(self.characters.to_ascii_lowercase());
        lowercase.len() >= UNMISTAKABLE && memchr::memmem::find(name.as_bytes(), &lowercase).is_some()
    }

    /// What it looks for, with each character in its plain form.
    pub fn characters(&self) -> &[u8] {
        &self.characters
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl Kind {
    /// The characters that `byte`, unescaped, may stand for.
    pub fn meanings(self, byte: u8) -> (u8, Option<u8>) {
        match (self, byte) {
            (Kind::Text, b'+') => (b'+', Some(b' ')),
            (Kind::Base64, b'-') => (b'-', Some(b'+')),
            (Kind::Base64, b'_') => (b'_', Some(b'/')),
            (Kind::Hex, byte) => (byte.to_ascii_lowercase(), None),
            (_, byte) => (byte, None),
        }
    }

    /// The bytes that stand for `character`, unescaped.
    pub fn forms(self, character: u8) -> (u8, Option<u8>) {
        match (self, character) {
            (Kind::Text, b' ') => (b' ', Some(b'+')),
            (Kind::Base64, b'+') => (b'+', Some(b'-')),
            (Kind::Base64, b'/') => (b'/', Some(b'_')),
            (Kind::Hex, b'a'..=b'f') => (character, Some(character.to_ascii_uppercase())),
            _ => (character, None),
        }
    }

    /// Whether a byte of a match belongs to a gap that stays visible.
    pub fn is_gap(self, byte: u8) -> bool {
        match self {
            Kind::Text => byte == 0,
            Kind::Base64 => byte.is_ascii_whitespace(),
            Kind::Hex => false,
        }
    }

    /// The length of the gap at the start of `rest`, before the character at `index` of a pattern. 0 if there is none.
    pub fn gap(self, rest: &[u8], index: usize) -> usize {
        match (self, rest) {
            (Kind::Base64, [b'\\', b'n' | b'r', ..]) if index >= DIGITS_BEFORE_BREAK => 2,
            (Kind::Base64, [b'%', b'0', b'a' | b'A' | b'd' | b'D', ..]) if index >= DIGITS_BEFORE_BREAK => 3,
            (Kind::Base64, [b' ' | b'\t' | b'\r' | b'\n', ..]) if index >= DIGITS_BEFORE_BREAK => 1,
            (Kind::Base64 | Kind::Text, [b'\\', ..]) => 1,
            (Kind::Text, [0, ..]) if index > 0 => 1,
            _ => 0,
        }
    }
}

/// The base64 digits that depend on the value alone, if `before` other bytes precede it in its group of three.
fn digits_inside(value: &str, before: usize) -> Zeroizing<String> {
    let bytes = Zeroizing::new([&[0; 2][..before], value.as_bytes()].concat());
    let digits = Zeroizing::new(STANDARD.encode(&*bytes));
    let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    Zeroizing::new(digits[first.min(last)..last].to_owned())
}

/// Escapes a value for a query.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
