//! Reads the server name from a TLS client hello. No I/O. Every byte is hostile.
//!
//! This parser is written by hand, because the existing ones are lenient or do not expose the extension with the
//! encrypted name. A client hello that two parsers could read differently must be refused, and not interpreted.

use crate::name::HostName;
use crate::policy::Refusal;

const HANDSHAKE_RECORD: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const LONGEST_RECORD: usize = 1 << 14;
/// The largest client hellos, with post-quantum keys, have about two thousand bytes.
const LONGEST_HELLO: usize = 1 << 15;
/// The most records that a client hello may span. Clients use one or a few, and all are parsed again when more bytes
/// arrive.
const MOST_RECORDS: usize = 16;
const SERVER_NAME: u16 = 0;
/// Encrypted client hello, and its predecessor.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];
const HOST_NAME: u8 = 0;

/// What a client hello shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server's name.
    pub name: Option<HostName>,
    /// There is another name, which only the server can read.
    pub encrypted_name: bool,
}

impl Hello {
    /// Reads a client hello. None if it is incomplete.
    pub fn read(bytes: &[u8]) -> Result<Option<Hello>, Refusal> {
        let Some(message) = handshake(bytes)? else { return Ok(None) };
        let hello = Reader(&message).hello().ok_or(Refusal::TlsMalformed)?;
        Ok(Some(hello))
    }
}

/// Joins the records that carry the first handshake message. None if it is incomplete.
fn handshake(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let mut message = Vec::new();
    for _ in 0..MOST_RECORDS {
        let (header, rest) = match bytes.split_at_checked(5) {
            Some(split) => split,
            None => return Ok(None),
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE_RECORD || header[1] != 3 || length == 0 || length > LONGEST_RECORD {
            return Err(Refusal::TlsMalformed);
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        message.extend_from_slice(payload);
        bytes = rest;
        if let Some(header) = message.get(..4) {
            let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
            if header[0] != CLIENT_HELLO || length > LONGEST_HELLO || message.len() > 4 + length {
                return Err(Refusal::TlsMalformed);
            }
            if message.len() == 4 + length {
                return Ok(Some(message.split_off(4)));
            }
        }
    }
    Err(Refusal::TlsMalformed)
}

/// Reads from the front. Returns none if bytes are missing or left over.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn hello(mut self) -> Option<Hello> {
        let _version_and_random = self.take(2 + 32)?;
        let _session = self.short()?;
        let _ciphers = self.long()?;
        let _compressions = self.short()?;
        let mut hello = Hello { name: None, encrypted_name: false };
        if self.0.is_empty() {
            return Some(hello);
        }
        let mut extensions = Reader(self.long()?);
        let mut seen = Vec::new();
        while !extensions.0.is_empty() {
            let (kind, data) = (extensions.u16()?, extensions.long()?);
            if seen.contains(&kind) {
                return None;
            }
            seen.push(kind);
            if kind == SERVER_NAME {
                hello.name = Some(Reader(data).server_name()?);
            }
            hello.encrypted_name |= ENCRYPTED.contains(&kind);
        }
        self.0.is_empty().then_some(hello)
    }

    /// The only name in a server name extension.
    fn server_name(mut self) -> Option<HostName> {
        let mut list = Reader(self.long()?);
        if !self.0.is_empty() || list.u8()? != HOST_NAME {
            return None;
        }
        let name = list.long()?;
        if !list.0.is_empty() {
            return None;
        }
        std::str::from_utf8(name).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
    }

    fn name_extension(name: &[u8]) -> Vec<u8> {
        let entry = [&[HOST_NAME][..], &(name.len() as u16).to_be_bytes(), name].concat();
        extension(SERVER_NAME, &[&(entry.len() as u16).to_be_bytes()[..], &entry].concat())
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0],
            &[0, 2, 0x13, 1],
            &[1, 0],
            &(extensions.len() as u16).to_be_bytes(),
            extensions,
        ]
        .concat();
        [&[CLIENT_HELLO, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE_RECORD, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn the_name_is_read_from_any_number_of_records() {
        let message = message(&name_extension(b"Example.com"));
        for size in [message.len().div_ceil(MOST_RECORDS), 40, 1000] {
            let bytes = records(&message, size);
            let hello = Hello::read(&bytes).unwrap().unwrap();
            assert_eq!(hello.name, Some("example.com".parse().unwrap()));
            for end in 0..bytes.len() {
                assert_eq!(Hello::read(&bytes[..end]), Ok(None), "cut at {end}");
            }
        }
    }

    #[test]
    fn too_many_records_are_refused() {
        let bytes = records(&message(&name_extension(b"example.com")), 1);
        assert_eq!(Hello::read(&bytes), Err(Refusal::TlsMalformed));
        assert_eq!(
            Hello::read(&bytes[..6 * MOST_RECORDS]),
            Err(Refusal::TlsMalformed),
            "as soon as there are too many"
        );
    }

    #[test]
    fn an_encrypted_name_is_detected() {
        for kind in ENCRYPTED {
            let extensions = [name_extension(b"a.com"), extension(kind, &[0; 8])].concat();
            assert!(Hello::read(&records(&message(&extensions), 999)).unwrap().unwrap().encrypted_name);
        }
    }

    #[test]
    fn two_names_are_refused() {
        let twice = [name_extension(b"a.com"), name_extension(b"b.com")].concat();
        assert_eq!(Hello::read(&records(&message(&twice), 999)), Err(Refusal::TlsMalformed));

        let entry = |name: &[u8]| [&[0, 0, 5][..], name].concat();
        let list = [entry(b"a.com"), entry(b"b.com")].concat();
        let both = extension(SERVER_NAME, &[&(list.len() as u16).to_be_bytes()[..], &list].concat());
        assert_eq!(Hello::read(&records(&message(&both), 999)), Err(Refusal::TlsMalformed));
    }

    #[test]
    fn names_that_servers_may_read_differently_are_refused() {
        for name in [&b"a.com\0.evil.com"[..], b"127.0.0.1", b"", b"a com", b"[::1]", b"\xff.com"] {
            let bytes = records(&message(&name_extension(name)), 999);
            assert_eq!(Hello::read(&bytes), Err(Refusal::TlsMalformed), "{name:?}");
        }
    }

    #[test]
    fn a_missing_name_is_not_an_error() {
        let hello = Hello::read(&records(&message(&extension(10, &[0, 2, 0, 29])), 999)).unwrap().unwrap();
        assert_eq!(hello, Hello { name: None, encrypted_name: false });
    }

    proptest! {
        #[test]
        fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Hello::read(&bytes);
            let _ = Hello::read(&records(&bytes, 50));
            let _ = Hello::read(&records(&message(&bytes), 999));
        }
    }
}
