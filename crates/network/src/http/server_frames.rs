//! WebSocket frames from a server that was sent secrets. They are searched for secrets, message by message.
//!
//! Messages are split into new frames, because a secret may span two frames, and control frames may come in between.
//! The connection ends if a frame cannot be read, because it is masked or compressed. No I/O. The bytes are hostile.

use super::scrub::Scrubber;
use crate::policy::Refusal;

const LAST: u8 = 0x80;
pub const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const CONTINUED: u8 = 0;
pub const CONTROL: u8 = 0x08;
pub const MASKED: u8 = 0x80;
/// The longest control frame.
const LONGEST_CONTROL: u64 = 125;

/// WebSocket frames from a server, with secrets masked.
pub struct ServerFrames {
    scrubber: Scrubber,
    /// The bytes of an incomplete header or control frame.
    begun: Vec<u8>,
    /// The frame whose payload comes next.
    frame: Option<Header>,
    /// The opcode of the message's next frame. None between messages.
    message: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    opcode: u8,
    last: bool,
    /// Payload bytes that are still to come.
    left: u64,
}

impl ServerFrames {
    pub fn new(scrubber: Scrubber) -> ServerFrames {
        ServerFrames { scrubber, begun: Vec::new(), frame: None, message: None }
    }

    /// Takes bytes, and returns those that are final.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut out = Vec::new();
        loop {
            let Some(frame) = self.frame else {
                let Some((first, rest)) = bytes.split_first() else { return Ok(out) };
                self.begun.push(*first);
                bytes = rest;
                if let Some(header) = header(&self.begun)? {
                    self.begun.clear();
                    self.begin(header)?;
                    if header.left == 0 {
                        self.payload(header, &[], &mut out);
                    }
                }
                continue;
            };
            if bytes.is_empty() {
                return Ok(out);
            }
            let count = usize::try_from(frame.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (payload, rest) = bytes.split_at(count);
            bytes = rest;
            self.payload(Header { left: frame.left - count as u64, ..frame }, payload, &mut out);
        }
    }

    fn begin(&mut self, header: Header) -> Result<(), Refusal> {
        let between = self.message.is_none();
        match header.opcode {
            opcode if opcode & CONTROL != 0 => {}
            CONTINUED if between => return Err(Refusal::AnswerEncoded),
            CONTINUED => {}
            _ if !between => return Err(Refusal::AnswerEncoded),
            opcode => self.message = Some(opcode),
        }
        self.frame = Some(header);
        Ok(())
    }

    /// Takes more payload. `frame` says how much is left after it.
    fn payload(&mut self, frame: Header, bytes: &[u8], out: &mut Vec<u8>) {
        let ended = frame.left == 0;
        self.frame = (!ended).then_some(frame);
        if frame.opcode & CONTROL != 0 {
            self.begun.extend_from_slice(bytes);
            if ended {
                write(frame.opcode | LAST, &self.scrubber.whole(&std::mem::take(&mut self.begun)), out);
            }
            return;
        }
        let mut certain = self.scrubber.push(bytes);
        let last = ended && frame.last;
        if last {
            certain.extend(self.scrubber.end());
        }
        if certain.is_empty() && !last {
            return;
        }
        let opcode = self.message.replace(CONTINUED).unwrap_or(CONTINUED);
        write(if last { opcode | LAST } else { opcode }, &certain, out);
        if last {
            self.message = None;
        }
    }
}

/// Parses a frame's header. None if it is incomplete.
fn header(bytes: &[u8]) -> Result<Option<Header>, Refusal> {
    let [first, second, length @ ..] = bytes else { return Ok(None) };
    if first & RESERVED != 0 || second & MASKED != 0 {
        return Err(Refusal::AnswerEncoded);
    }
    let Some((left, _)) = payload_length(*second, length) else { return Ok(None) };
    let header = Header { opcode: first & OPCODE, last: first & LAST != 0, left };
    if header.opcode & CONTROL != 0 && (left > LONGEST_CONTROL || !header.last) {
        return Err(Refusal::AnswerEncoded);
    }
    Ok(Some(header))
}

/// The length of a frame's payload, and the rest of its header. None if the header is incomplete.
pub fn payload_length(second: u8, after: &[u8]) -> Option<(u64, &[u8])> {
    match second & !MASKED {
        126 => after.split_first_chunk().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest)),
        127 => after.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest)),
        short => Some((short.into(), after)),
    }
}

fn write(first: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    match payload.len() {
        length @ 0..=125 => out.push(length as u8),
        length @ 126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pattern::Pattern;
    use super::*;

    fn frames() -> ServerFrames {
        ServerFrames::new(Scrubber::new(vec![Pattern::text("hunter2")]))
    }

    fn through(bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut frames = frames();
        bytes.chunks(cut).flat_map(|chunk| frames.push(chunk).unwrap()).collect()
    }

    /// The messages and the control frames that a client reads.
    fn read(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut read = Vec::new();
        let mut message: Option<(u8, Vec<u8>)> = None;
        while !bytes.is_empty() {
            let length = (2..=10).find(|length| header(&bytes[..*length]).unwrap().is_some()).unwrap();
            let found = header(&bytes[..length]).unwrap().unwrap();
            let (payload, rest) = bytes[length..].split_at(found.left as usize);
            bytes = rest;
            if found.opcode & CONTROL != 0 {
                read.push((found.opcode, payload.to_vec()));
                continue;
            }
            let open = message.get_or_insert((found.opcode, Vec::new()));
            open.1.extend_from_slice(payload);
            if found.last {
                read.extend(message.take());
            }
        }
        assert!(message.is_none(), "a message without its end");
        read
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(first, payload, &mut out);
        out
    }

    #[test]
    fn messages_without_secrets_pass_unchanged() {
        for payload in [&b""[..], b"hello", b"hunter", &[7; 125], &[7; 126], &[7; 70_000]] {
            let message = frame(LAST | 1, payload);
            assert_eq!(frames().push(&message).unwrap(), message, "{} bytes", payload.len());
        }
    }

    #[test]
    fn a_secret_across_frames_is_masked_and_control_frames_pass_in_between() {
        let parts = [frame(1, b"say hun"), frame(LAST | 9, b"ping hunter2"), frame(0, b"ter"), frame(LAST, b"2 now")];
        for cut in 1..40 {
            let found = read(&through(&parts.concat(), cut));
            let expected = [(9, b"ping *******".to_vec()), (1, b"say ******* now".to_vec())];
            assert_eq!(found, expected, "cut every {cut}");
        }
    }

    #[test]
    fn unreadable_frames_are_refused() {
        for bytes in [&[0xc1, 1, 7][..], &[0x81, 0x81, 0, 0, 0, 0, 7], &[0x80, 0], &[0x89, 126, 0, 126], &[0x09, 0]] {
            assert_eq!(frames().push(bytes), Err(Refusal::AnswerEncoded), "{bytes:?}");
        }
        let twice = [frame(1, b"a"), frame(LAST | 1, b"b")].concat();
        assert_eq!(frames().push(&twice), Err(Refusal::AnswerEncoded));
    }

    proptest! {
        #[test]
        fn other_messages_pass_wherever_they_are_split(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
            cut in 1usize..50,
        ) {
            let last = payloads.len() - 1;
            let of = |(at, payload): (usize, &Vec<u8>)| {
                frame(if at == 0 { 2 } else { 0 } | if at == last { LAST } else { 0 }, payload)
            };
            let bytes: Vec<u8> = payloads.iter().enumerate().flat_map(of).collect();
            prop_assert_eq!(read(&through(&bytes, cut)), vec![(2, payloads.concat())]);
        }

        #[test]
        fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1usize..50) {
            let mut frames = frames();
            for chunk in bytes.chunks(cut) {
                if frames.push(chunk).is_err() {
                    break;
                }
            }
        }
    }
}
