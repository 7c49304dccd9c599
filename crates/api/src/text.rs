//! Text for JSON and event streams.
//!
//! JSON is sent in ASCII only, because the public Python client splits raw text at characters such as U+2028 and,
//! without a charset, decodes it as Latin-1.

use std::fmt::Write;

pub(crate) use sandling_service::Decoder;
use serde::Serialize;

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

/// Decodes everything at once.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_ascii_and_still_the_same() {
        let text = "é\u{2028}😀\u{85}";
        let json = ascii_json(&text);
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
