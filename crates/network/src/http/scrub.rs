//! Removes secrets from responses, so that a server that repeats them does not tell them to the guest.
//!
//! [`Pattern`] says which ways to write a secret are found. A secret that the server transforms in another way passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use super::pattern::Pattern;
use super::pattern_set::PatternSet;

/// Replaces each byte of a secret.
const BLOT: u8 = b'*';

/// Masks patterns in a stream of bytes, wherever it is split and however the patterns overlap.
#[derive(Clone)]
pub struct Scrubber {
    patterns: Arc<PatternSet>,
    /// Bytes from the first one that may begin a pattern.
    held: Vec<u8>,
    /// Which of these bytes are already known to be part of a pattern. Those after its end are not.
    blotted: Vec<bool>,
}

impl Scrubber {
    pub fn new(patterns: Vec<Pattern>) -> Scrubber {
        Scrubber { patterns: Arc::new(PatternSet::new(patterns)), held: Vec::new(), blotted: Vec::new() }
    }

    /// Takes bytes, and returns those that are final.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let undecided = self.mark();
        self.give(undecided)
    }

    /// Returns the bytes that are still held.
    pub fn end(&mut self) -> Vec<u8> {
        self.give(self.held.len())
    }

    /// Masks a complete byte string.
    pub fn whole(&self, bytes: &[u8]) -> Vec<u8> {
        let mut one = Scrubber { held: Vec::new(), blotted: Vec::new(), ..self.clone() };
        let mut out = one.push(bytes);
        out.extend(one.end());
        out
    }

    /// The number of held bytes.
    pub fn holds(&self) -> usize {
        self.held.len()
    }

    /// Masks the values of headers. Removes headers whose name contains a secret.
    pub fn headers(&self, headers: &mut HeaderMap) {
        let repeats = |name: &&HeaderName| self.patterns.iter().any(|pattern| pattern.is_in_name(name.as_str()));
        let names: Vec<HeaderName> = headers.keys().filter(repeats).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        for (name, value) in headers.iter_mut() {
            if name == CONTENT_LENGTH {
                continue;
            }
            let bytes = self.whole(value.as_bytes());
            if bytes != value.as_bytes() {
                *value = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""));
            }
        }
    }

    /// Marks every pattern in the held bytes, including overlapping ones. Returns the offset of the first byte that may
    /// begin a pattern which needs more bytes.
    fn mark(&mut self) -> usize {
        let Scrubber { patterns, held, blotted } = self;
        let mut undecided = held.len();
        patterns.search(held, |at, found| {
            for (kind, end) in found.ends.into_iter().flatten() {
                blotted.resize(blotted.len().max(end), false);
                for (byte, blotted) in held[at..end].iter().zip(&mut blotted[at..end]) {
                    *blotted |= !kind.is_gap(*byte);
                }
            }
            if found.unfinished {
                undecided = undecided.min(at);
            }
        });
        undecided
    }

    /// Returns the first `count` held bytes.
    fn give(&mut self, count: usize) -> Vec<u8> {
        let rest = self.held.split_off(count);
        let mut given = std::mem::replace(&mut self.held, rest);
        let known = count.min(self.blotted.len());
        for (byte, _) in given.iter_mut().zip(self.blotted.drain(..known)).filter(|(_, blotted)| *blotted) {
            *byte = BLOT;
        }
        given
    }
}

/// The body of a response, with secrets masked.
pub struct Scrubbed {
    body: Incoming,
    scrubber: Option<Scrubber>,
    /// Trailers that follow the last bytes.
    trailers: Option<Frame<Bytes>>,
}

impl Scrubbed {
    /// The body, masked if there is a scrubber.
    pub fn new(body: Incoming, scrubber: Option<Scrubber>) -> Scrubbed {
        Scrubbed { body, scrubber, trailers: None }
    }
}

impl Body for Scrubbed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
            let Some(scrubber) = &mut self.scrubber else { return Poll::Ready(frame) };
            let certain = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => scrubber.push(&data),
                    Err(mut other) => {
                        if let Some(trailers) = other.trailers_mut() {
                            scrubber.headers(trailers);
                        }
                        let rest = scrubber.end();
                        self.trailers = Some(other);
                        rest
                    }
                },
                None => {
                    let rest = scrubber.end();
                    if rest.is_empty() {
                        return Poll::Ready(None);
                    }
                    rest
                }
                failed => return Poll::Ready(failed),
            };
            if !certain.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(certain.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let held = self.scrubber.as_ref().is_some_and(|scrubber| scrubber.holds() > 0);
        self.body.is_end_stream() && !held && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        // A mask is as long as what it covers. Held bytes follow later.
        let held = self.scrubber.as_ref().map_or(0, |scrubber| scrubber.holds() as u64);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + held);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;
    use crate::placement::Placement;
    use crate::secret::Secret;

    /// A scrubber for these texts.
    fn scrubber(texts: &[&str]) -> Scrubber {
        Scrubber::new(texts.iter().map(|text| Pattern::text(text)).collect())
    }

    /// A scrubber for a secret with this value.
    fn of_secret(value: &str) -> Scrubber {
        let (hosts, placements) = (vec!["api.example.com".parse().unwrap()], vec![Placement::default()]);
        Scrubber::new(Pattern::all(
            &Secret::new("token", "sandling-placeholder-1", value.to_owned(), hosts, placements).unwrap(),
        ))
    }

    /// Pushes a text in pieces of these lengths, over and over.
    fn through(scrubber: &mut Scrubber, text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), text);
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            out.extend(scrubber.push(piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        out.extend(scrubber.end());
        out
    }

    /// One character, written in one of many ways.
    fn written(character: char, way: usize) -> String {
        let code = u32::from(character);
        match way {
            0 => format!("%{code:02X}"),
            1 => format!("%{code:02x}"),
            2 => format!("%25{code:02x}"),
            3 => format!("\\u{code:04x}"),
            4 => format!("\\\\u{code:04X}"),
            5 => format!("\\u{{{code:x}}}"),
            6 => format!("\\x{code:02x}"),
            7 => format!("\\{code:03o}"),
            8 => format!("&#{code};"),
            9 => format!("&#x{code:X};"),
            10 => format!("&amp;#0{code};"),
            11 => format!("={code:02X}"),
            12 => format!("\\U{code:08x}"),
            13 if !character.is_ascii_alphanumeric() => format!("\\{character}"),
            14 if character == '&' => "&amp;".to_owned(),
            14 if character == '/' => "&sol;".to_owned(),
            15 if character == ' ' => "+".to_owned(),
            _ => character.to_string(),
        }
    }

    /// Wraps a text into lines of this length.
    fn wrapped(text: &str, length: usize, line_break: &str) -> String {
        let lines: Vec<_> = text.as_bytes().chunks(length).map(|line| String::from_utf8_lossy(line)).collect();
        lines.join(line_break)
    }

    #[test]
    fn headers_are_masked() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("Bearer hunter2!"));
        scrubber(&["hunter2"]).headers(&mut headers);
        assert_eq!(headers["x-echo"], "Bearer *******!");
        headers.insert("x-hunter-2", HeaderValue::from_static(""));
        headers.insert("content-length", HeaderValue::from_static("12"));
        scrubber(&["Hunter-2", "content", "12"]).headers(&mut headers);
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["content-length"], "12");
    }

    #[test]
    fn overlapping_secrets_are_both_masked() {
        for cut in 1..20 {
            let out = |texts: &[&str], text: &str| {
                String::from_utf8(through(&mut scrubber(texts), text.as_bytes(), &[cut])).unwrap()
            };
            assert_eq!(out(&["key", "key-of-two"], "a key-of-two, a key"), "a **********, a ***");
            assert_eq!(out(&["key-of-two", "two-more"], "key-of-two-more!"), "***************!");
            assert_eq!(out(&["key", "key-of-two"], "key-of-it"), "***-of-it");
        }
    }

    #[test]
    fn common_ways_to_write_a_secret_are_masked() {
        let value = "a+b/c=d&e 12";
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let little: Vec<u8> = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = value.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let base64 = STANDARD.encode(format!("user:{value}"));
        for echo in [
            value.to_owned(),
            r"a+b\/c=d&e 12".to_owned(),
            r"a\u002bb\/c=d\u0026e 12".to_owned(),
            "a+b&#47;c=d&amp;e 12".to_owned(),
            "a%2bb%2fc%3dd%26e+12".to_owned(),
            hex.to_uppercase(),
            hex,
        ] {
            let out = String::from_utf8(of_secret(value).whole(format!("<{echo}>").as_bytes())).unwrap();
            assert_eq!(out, format!("<{}>", "*".repeat(echo.len())), "{echo}");
        }
        assert_eq!(of_secret(value).whole(&little), "*\0".repeat(12).as_bytes());
        assert_eq!(of_secret(value).whole(&big), "\0*".repeat(12).as_bytes());
        for line_break in ["\n", "\r\n", r"\n", r"\r\n", "\n        "] {
            let echo = wrapped(&base64, 5, line_break);
            let out = String::from_utf8(of_secret(value).whole(echo.as_bytes())).unwrap();
            // Of the 24 digits, 15 depend on the value alone.
            assert!(out.matches('*').count() >= 15 && !out.contains(&base64[7..10]), "{out}");
        }
    }

    #[test]
    fn masked_json_stays_valid() {
        let echo = serde_json::json!({ "key": "/one\"two\\three", "path": r"C:\x" }).to_string().replace('/', "\\/");
        let out = String::from_utf8(of_secret("/one\"two\\three").whole(echo.as_bytes())).unwrap();
        let read: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(!out.contains("one") && read["path"] == r"C:\x", "{out}");
    }

    #[test]
    fn the_end_of_a_line_is_not_held_back() {
        let mut scrubber = of_secret("hunter2-the-real-one");
        for line in ["data: {}\n\n", "aH\n", "h\n", "hunt\n", "68\n"] {
            assert_eq!(scrubber.push(line.as_bytes()), line.as_bytes());
        }
    }

    #[test]
    fn the_held_bytes_are_bounded() {
        let value = "hunter2-the-real-one";
        for filler in ["\\", "\0", "%25", "&amp;", "\\u00", "\n", " ", "h"] {
            let mut scrubber = of_secret(value);
            for part in ["hunter", &filler.repeat(5000), "aHVudGVy", &filler.repeat(5000)] {
                for chunk in part.as_bytes().chunks(7) {
                    scrubber.push(chunk);
                    assert!(scrubber.holds() < value.len() * 48, "{filler:?}: {}", scrubber.holds());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_secret_never_passes_however_it_is_written_and_split(
            value in "[!-~][ -~]{7,30}[!-~]",
            ways in prop::collection::vec(0usize..40, 40),
            before in "[a-z\"{}: ]{0,20}", after in "[a-z\"{}: ]{0,20}",
            cuts in prop::collection::vec(1usize..12, 1..8),
        ) {
            let echo: String = value.chars().zip(&ways).map(|(character, way)| written(character, *way)).collect();
            let text = format!("{before}{echo}{after}");
            let out = through(&mut of_secret(&value), text.as_bytes(), &cuts);
            prop_assert_eq!(out.len(), text.len());
            let masked = &out[before.len()..before.len() + echo.len()];
            prop_assert!(masked.iter().all(|byte| *byte == BLOT), "{} became {}", text, String::from_utf8_lossy(&out));
        }

        #[test]
        fn a_secret_never_passes_in_utf_16(
            value in "[!-~]{9,30}", before in "[a-z ]{0,9}", after in "[a-z ]{0,9}", big in any::<bool>(),
            cuts in prop::collection::vec(1usize..12, 1..8),
        ) {
            let encode = |text: &str| -> Vec<u8> {
                text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
            };
            let out = through(&mut of_secret(&value), &encode(&format!("{before}{value}{after}")), &cuts);
            let masked = &out[2 * before.len()..2 * (before.len() + value.len())];
            prop_assert_eq!(masked, encode(&"*".repeat(value.len())));
        }

        #[test]
        fn a_secret_never_passes_in_wrapped_base64(
            value in "[!-~]{12,40}", before in "[ -~]{0,9}", after in "[ -~]{0,9}", url in any::<bool>(),
            length in 4usize..80, line_break in "(\r?\n[ \t]{0,8}|\\\\n|%0A)",
            cuts in prop::collection::vec(1usize..12, 1..8),
        ) {
            let text = format!("{before}{value}{after}");
            let digits = if url { URL_SAFE_NO_PAD.encode(text) } else { STANDARD.encode(text) };
            let out = through(&mut of_secret(&value), wrapped(&digits, length, &line_break).as_bytes(), &cuts);
            let out = String::from_utf8(out).unwrap().replace(&line_break, "");
            // The digits at both ends also depend on the text around the value, and a line may end after two more.
            let visible = out.matches(|digit: char| digit != '*').count();
            let around = (before.len() + after.len()) * 4 / 3 + 4;
            prop_assert!(visible <= around + 6, "{} of {}: {}", visible, digits.len(), out);
        }

        #[test]
        fn other_bytes_pass_unchanged(
            text in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'%'), Just(b'&'), Just(0), any::<u8>()], 0..300),
            cuts in prop::collection::vec(1usize..12, 1..8),
        ) {
            prop_assert_eq!(through(&mut of_secret("hunter2-the-real-one"), &text, &cuts), text);
        }

        #[test]
        fn text_that_resembles_a_secret_passes_unchanged(text in "[a-e]{0,60}", cut in 1usize..9) {
            prop_assume!(!text.contains("abcabd"));
            prop_assert_eq!(through(&mut scrubber(&["abcabd"]), text.as_bytes(), &[cut]), text.as_bytes());
        }
    }
}
