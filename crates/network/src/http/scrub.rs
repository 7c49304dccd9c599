//! Removes secrets from responses, so that a server that repeats them does not tell them to the guest.
//!
//! It finds the common spellings. It cannot find a secret that the server has transformed in another way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;

use super::spelling::Spelling;
use crate::secret::UNMISTAKABLE;

/// Replaces each byte of a secret.
const BLOT: u8 = b'*';

/// Masks spellings in a stream of bytes, wherever it is split and however the spellings overlap.
pub struct Scrubber {
    spellings: Vec<Spelling>,
    /// Bytes that may be the start of a spelling.
    held: Vec<u8>,
    /// Which of these bytes are already known to be part of a spelling.
    blotted: Vec<bool>,
}

impl Scrubber {
    pub fn new(mut spellings: Vec<Spelling>) -> Scrubber {
        spellings.retain(|spelling| !spelling.is_empty());
        Scrubber { spellings, held: Vec::new(), blotted: Vec::new() }
    }

    /// Takes bytes, and returns those that are final.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.blotted.resize(self.held.len(), false);
        self.mark();
        self.give(self.held.len() - self.doubtful())
    }

    /// Returns the bytes that are still held.
    pub fn end(&mut self) -> Vec<u8> {
        self.give(self.held.len())
    }

    /// Masks a complete byte string.
    pub fn whole(&self, bytes: &[u8]) -> Vec<u8> {
        let mut one = Scrubber::new(self.spellings.clone());
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
        // A short value may be part of any header name.
        let long = self.spellings.iter().filter(|known| known.len() >= UNMISTAKABLE);
        let lower: Vec<Spelling> = long.map(|known| known.to_ascii_lowercase().into()).collect();
        let repeats = |name: &&HeaderName| lower.iter().any(|known| memmem::find(name.as_ref(), known).is_some());
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

    /// Marks every spelling in the held bytes, including overlapping ones.
    fn mark(&mut self) {
        for spelling in &self.spellings {
            let finder = memmem::Finder::new(spelling.as_slice());
            let mut from = 0;
            while let Some(found) = finder.find(&self.held[from..]) {
                let at = from + found;
                self.blotted[at..at + spelling.len()].fill(true);
                from = at + 1;
            }
        }
    }

    /// Returns the first `count` held bytes.
    fn give(&mut self, count: usize) -> Vec<u8> {
        let rest = self.held.split_off(count);
        let mut given = std::mem::replace(&mut self.held, rest);
        for (byte, _) in given.iter_mut().zip(self.blotted.drain(..count)).filter(|(_, blotted)| *blotted) {
            *byte = BLOT;
        }
        given
    }

    /// The number of bytes at the end that may be the start of a spelling.
    fn doubtful(&self) -> usize {
        let longest = self.spellings.iter().map(|spelling| spelling.len()).max().unwrap_or_default();
        let most = longest.saturating_sub(1).min(self.held.len());
        let begins =
            |tail: &[u8]| self.spellings.iter().any(|known| known.len() > tail.len() && known.starts_with(tail));
        (1..=most).rev().find(|length| begins(&self.held[self.held.len() - length..])).unwrap_or_default()
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
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;

    fn scrubber(spellings: &[&str]) -> Scrubber {
        Scrubber::new(spellings.iter().map(|text| Zeroizing::new(text.as_bytes().to_vec())).collect())
    }

    fn through(scrubber: &mut Scrubber, text: &[u8], cut: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in text.chunks(cut) {
            out.extend(scrubber.push(chunk));
        }
        out.extend(scrubber.end());
        out
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
            let out = |spellings: &[&str], text: &str| {
                String::from_utf8(through(&mut scrubber(spellings), text.as_bytes(), cut)).unwrap()
            };
            assert_eq!(out(&["key", "key-of-two"], "a key-of-two, a key"), "a **********, a ***");
            assert_eq!(out(&["key-of-two", "two-more"], "key-of-two-more!"), "***************!");
            assert_eq!(out(&["key", "key-of-two"], "key-of-it"), "***-of-it");
        }
    }

    proptest! {
        #[test]
        fn a_secret_never_passes_wherever_it_is_split(before in "[a-h]{0,20}", after in "[a-h]{0,20}", cut in 1usize..9) {
            let secret = "abcabd";
            let text = format!("{before}{secret}{after}");
            let out = through(&mut scrubber(&[secret]), text.as_bytes(), cut);
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(!out.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }

        #[test]
        fn other_bytes_pass_unchanged(text in "[a-e]{0,60}", cut in 1usize..9) {
            prop_assume!(!text.contains("abcabd"));
            prop_assert_eq!(through(&mut scrubber(&["abcabd"]), text.as_bytes(), cut), text.as_bytes());
        }
    }
}
