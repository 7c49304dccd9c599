//! Bytes of a guest as text for JSON and event streams.
//!
//! Pieces are cut anywhere, so an unfinished character waits for its rest; what is no UTF-8 becomes U+FFFD. JSON
//! goes out in ASCII alone: the public Python client splits raw text at characters such as U+2028 and, without a
//! charset, takes it for Latin-1.

use std::fmt::Write;

use serde::Serialize;

/// Turns a sequence of byte pieces into text, never splitting a character.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character, at most three bytes.
    rest: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.rest = all.split_off(whole);
        String::from_utf8(all).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// What is left when nothing more will come.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// How many bytes at the end may become a character once more arrive.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let needs = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        let tail = &bytes[bytes.len() - back..];
        // A wrong second byte can never become right, however many follow.
        let hopeless = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_some());
        return if needs > back && !hopeless { back } else { 0 };
    }
    0
}

/// JSON in which every character beyond ASCII is escaped.
pub(crate) fn ascii_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("wire types have string keys and no failing serializer");
    if json.is_ascii() {
        return json;
    }
    let mut ascii = String::with_capacity(json.len() * 2);
    for character in json.chars() {
        if character.is_ascii() {
            ascii.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(ascii, "\\u{unit:04x}").expect("a String takes everything");
        }
    }
    ascii
}

/// All of it at once.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_is_ascii_and_still_the_same() {
        let text = "é\u{2028}😀\u{85}";
        let json = ascii_json(&text);
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    proptest! {
        #[test]
        fn cutting_text_anywhere_changes_nothing(text in ".{0,40}", cuts in proptest::collection::vec(0usize..160, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut decoder = Decoder::default();
            let (mut heard, mut from) = (String::new(), 0);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                heard += &decoder.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(heard + &decoder.finish(), text);
        }

        #[test]
        fn any_bytes_are_taken_and_at_most_three_are_kept_back(pieces in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let mut decoder = Decoder::default();
            for piece in &pieces {
                decoder.push(piece);
                prop_assert!(decoder.rest.len() <= 3);
            }
            decoder.finish();
        }
    }
}
