//! WebSocket frames from a guest. They pass unchanged, unless they contain a placeholder. No I/O. The bytes are
//! hostile.

use super::search::Search;
use super::server_frames::{CONTROL, MASKED, RESERVED, payload_length};
use crate::policy::Refusal;

/// WebSocket frames from a guest, which are searched for placeholders.
pub struct GuestFrames {
    messages: Search,
    /// Searches control frames, which may come in the middle of a message.
    control: Search,
    /// The bytes of an incomplete header.
    begun: Vec<u8>,
    /// The frame whose payload comes next.
    frame: Option<Header>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    is_control: bool,
    mask: [u8; 4],
    /// Payload bytes that are still to come.
    left: u64,
}

impl GuestFrames {
    pub fn new(search: Search) -> GuestFrames {
        GuestFrames { messages: search.clone(), control: search, begun: Vec::new(), frame: None }
    }

    /// Takes bytes. Refuses them if they complete a placeholder or cannot be parsed.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while let Some((first, rest)) = bytes.split_first() {
            let Some(mut frame) = self.frame else {
                bytes = rest;
                self.begun.push(*first);
                if let Some(header) = header(&self.begun)? {
                    self.begun.clear();
                    self.frame = Some(header).filter(|header| header.left > 0);
                }
                continue;
            };
            let count = usize::try_from(frame.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (payload, rest) = bytes.split_at(count);
            bytes = rest;
            let search = if frame.is_control { &mut self.control } else { &mut self.messages };
            if search.finds(&frame.unmask(payload)) {
                return Err(Refusal::SecretMisplaced);
            }
            self.frame = Some(frame).filter(|frame| frame.left > 0);
        }
        Ok(())
    }
}

impl Header {
    /// Unmasks the next bytes of the payload.
    fn unmask(&mut self, payload: &[u8]) -> Vec<u8> {
        let plain = payload.iter().zip(self.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        self.mask.rotate_left(payload.len() % 4);
        self.left -= payload.len() as u64;
        plain
    }
}

/// Parses a frame's header. None if it is incomplete. The server refuses frames that are not masked.
fn header(bytes: &[u8]) -> Result<Option<Header>, Refusal> {
    let [first, second, after @ ..] = bytes else { return Ok(None) };
    // No extension was negotiated, and a compressed frame could not be searched.
    if first & RESERVED != 0 {
        return Err(Refusal::HttpMalformed);
    }
    let Some((left, after)) = payload_length(*second, after) else { return Ok(None) };
    let mask = match after {
        _ if second & MASKED == 0 => [0; 4],
        [a, b, c, d] => [*a, *b, *c, *d],
        _ => return Ok(None),
    };
    Ok(Some(Header { is_control: first & CONTROL != 0, mask, left }))
}

#[cfg(test)]
mod tests {
    use super::super::search::tests::{PLACEHOLDER, search};
    use super::*;

    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let length = match payload.len() {
            short @ 0..=125 => vec![MASKED | short as u8],
            long => [&[MASKED | 126][..], &(long as u16).to_be_bytes()].concat(),
        };
        let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        [&[first][..], &length, &mask].concat().into_iter().chain(masked).collect()
    }

    fn refused(bytes: &[u8], cut: usize) -> Result<(), Refusal> {
        let mut sent = GuestFrames::new(search());
        bytes.chunks(cut).try_for_each(|chunk| sent.push(chunk))
    }

    #[test]
    fn a_placeholder_is_found_in_masked_and_split_frames() {
        let (first, second) = PLACEHOLDER.as_bytes().split_at(9);
        let parts = [
            frame(0x81, b"before", [1, 2, 3, 4]),
            frame(0x01, &[&[7; 300][..], first].concat(), [9, 8, 7, 6]),
            frame(0x89, b"", [5; 4]),
            frame(0x89, b"ping", [0; 4]),
            frame(0x80, second, [4, 4, 1, 1]),
        ];
        let harmless = [&parts[..4].concat()[..], &frame(0x80, b"-else", [4, 4, 1, 1])].concat();
        for cut in 1..40 {
            assert_eq!(refused(&parts.concat(), cut), Err(Refusal::SecretMisplaced), "cut every {cut}");
            assert_eq!(refused(&harmless, cut), Ok(()), "cut every {cut}");
            assert_eq!(refused(&frame(0x89, PLACEHOLDER.as_bytes(), [3; 4]), cut), Err(Refusal::SecretMisplaced));
        }
    }

    #[test]
    fn extensions_are_refused() {
        assert_eq!(refused(&frame(0xc1, b"deflated", [1; 4]), 5), Err(Refusal::HttpMalformed));
    }
}
