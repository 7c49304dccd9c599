//! Frames: a JSON header and a binary body, COBS-encoded between zero bytes.
//!
//! COBS leaves no zero byte inside a frame, so a receiver that starts in the middle of one, or whose peer was cut off, is
//! in step again at the next zero. The lengths at the start of a frame reveal one that was cut short.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cobs;

/// The largest frame, header and body together, that a receiver accepts before decoding.
pub const MAX_FRAME: usize = 2 * 1024 * 1024;

const LENGTHS: usize = 8;

/// One decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<T> {
    pub message: T,
    pub body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("frame is longer than {MAX_FRAME} bytes")]
    TooLong,
    #[error("frame was cut short or its lengths disagree")]
    Torn,
    #[error("frame header is not a known message")]
    Header(#[source] serde_json::Error),
}

/// Encodes a message and its body, ready to be written to the channel.
pub fn encode<T: Serialize>(message: &T, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let header = serde_json::to_vec(message).map_err(FrameError::Header)?;
    let total = LENGTHS + header.len() + body.len();
    if total > MAX_FRAME {
        return Err(FrameError::TooLong);
    }
    let mut raw = Vec::with_capacity(total);
    raw.extend_from_slice(&(total as u32).to_le_bytes());
    raw.extend_from_slice(&(header.len() as u32).to_le_bytes());
    raw.extend_from_slice(&header);
    raw.extend_from_slice(body);

    let mut out = Vec::with_capacity(cobs::max_encoded_length(total) + 2);
    out.push(0);
    cobs::encode(&raw, &mut out);
    out.push(0);
    Ok(out)
}

/// Turns the bytes of a channel back into frames, whatever pieces they arrive in.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    skipping: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the channel and returns the frames that they complete, in order.
    ///
    /// A bad frame is an `Err` in its place, and the decoder continues with the next one. It never holds more than one
    /// frame.
    pub fn push<T: DeserializeOwned>(&mut self, mut bytes: &[u8]) -> Vec<Result<Frame<T>, FrameError>> {
        let mut frames = Vec::new();
        while let Some(end) = memchr::memchr(0, bytes) {
            self.take(&bytes[..end], &mut frames);
            bytes = &bytes[end + 1..];
            let skipped = std::mem::take(&mut self.skipping);
            let mut encoded = std::mem::take(&mut self.pending);
            if !skipped && !encoded.is_empty() {
                frames.push(decode(&mut encoded));
            }
            encoded.clear();
            self.pending = encoded;
        }
        self.take(bytes, &mut frames);
        frames
    }

    fn take<T>(&mut self, bytes: &[u8], frames: &mut Vec<Result<Frame<T>, FrameError>>) {
        if self.skipping {
            return;
        }
        if self.pending.len() + bytes.len() > cobs::max_encoded_length(MAX_FRAME) {
            self.pending = Vec::new();
            self.skipping = true;
            frames.push(Err(FrameError::TooLong));
            return;
        }
        self.pending.extend_from_slice(bytes);
    }
}

fn decode<T: DeserializeOwned>(encoded: &mut [u8]) -> Result<Frame<T>, FrameError> {
    let length = cobs::decode(encoded).map_err(|cobs::Torn| FrameError::Torn)?;
    let raw = &encoded[..length];
    let (Some(total), Some(header)) = (length_at(raw, 0), length_at(raw, 4)) else {
        return Err(FrameError::Torn);
    };
    if total != raw.len() || header > raw.len() - LENGTHS {
        return Err(FrameError::Torn);
    }
    let (header, body) = raw[LENGTHS..].split_at(header);
    let message = serde_json::from_slice(header).map_err(FrameError::Header)?;
    Ok(Frame { message, body: body.to_vec() })
}

fn length_at(raw: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; 4] = raw.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Part, ToHost};
    use proptest::prelude::*;

    fn data(stream: u32) -> ToHost {
        ToHost::Data { stream, part: Part::Stdout, offset: 7 }
    }

    #[test]
    fn a_frame_cut_in_the_middle_does_not_spoil_the_next_one() {
        let first = encode(&data(1), b"lost").unwrap();
        let second = encode(&data(2), b"kept").unwrap();
        for cut in 0..first.len() {
            let mut decoder = Decoder::new();
            let mut frames = decoder.push::<ToHost>(&first[..cut]);
            frames.extend(decoder.push::<ToHost>(&second));
            let good: Vec<_> = frames.into_iter().flatten().collect();
            assert_eq!(good.last().unwrap().body, b"kept", "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_of_any_length_is_complete_without_its_successor() {
        for length in 0..1100 {
            for byte in [0u8, 7] {
                let bytes = encode(&data(1), &vec![byte; length]).unwrap();
                let frames = Decoder::new().push::<ToHost>(&bytes);
                assert_eq!(frames.len(), 1, "{length} bytes of {byte}");
                assert_eq!(frames[0].as_ref().unwrap().body.len(), length);
            }
        }
    }

    #[test]
    fn an_endless_frame_is_refused_once_and_not_stored() {
        let mut decoder = Decoder::new();
        let block = vec![1u8; 1024 * 1024];
        let mut errors = 0;
        for _ in 0..8 {
            errors += decoder.push::<ToHost>(&block).iter().filter(|f| f.is_err()).count();
        }
        assert_eq!(errors, 1);
        assert!(decoder.pending.capacity() < 4 * MAX_FRAME);
        let next = encode(&data(3), b"after").unwrap();
        let frames = decoder.push::<ToHost>(&next);
        assert_eq!(frames.into_iter().flatten().next().unwrap().body, b"after");
    }

    proptest! {
        #[test]
        fn any_body_comes_back_in_any_pieces(body in proptest::collection::vec(any::<u8>(), 0..4000), piece in 1usize..600) {
            let bytes = encode(&data(9), &body).unwrap();
            let mut decoder = Decoder::new();
            let mut frames = Vec::new();
            for part in bytes.chunks(piece) {
                frames.extend(decoder.push::<ToHost>(part));
            }
            prop_assert_eq!(frames.len(), 1);
            prop_assert_eq!(&frames.pop().unwrap().unwrap().body, &body);
        }

        #[test]
        fn rubbish_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let mut decoder = Decoder::new();
            let _ = decoder.push::<ToHost>(&bytes);
        }
    }
}
