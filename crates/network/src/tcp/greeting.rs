//! Detects the protocol of a connection from the client's first bytes. No I/O. The bytes are hostile.

/// The protocol that the first bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    Tls,
    /// HTTP of any version, well-formed or not. A strict parser reads it next.
    Http,
    Other,
    /// More bytes are needed.
    Unsure,
}

/// The longest first line that is waited for.
const LONGEST_LINE: usize = 8 * 1024;
/// Types of TLS records. Only a handshake may come first, but some servers skip other records and continue.
const TLS_RECORDS: std::ops::RangeInclusive<u8> = 0x14..=0x18;
/// First byte of the version in a TLS record.
const TLS_VERSION: u8 = 0x03;
/// HTTP methods, and the preface of HTTP/2.
const METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"PRI"];

/// Detects the protocol from the bytes so far. `Other` is final: no further byte can turn it into TLS or HTTP. If the
/// bytes could be HTTP or another text protocol, the result is HTTP, because HTTP has names to check.
pub fn classify(bytes: &[u8]) -> Greeting {
    match bytes {
        [] => return Greeting::Unsure,
        [first] if TLS_RECORDS.contains(first) => return Greeting::Unsure,
        [first, TLS_VERSION, ..] if TLS_RECORDS.contains(first) => return Greeting::Tls,
        _ => {}
    }
    // Servers skip empty lines before a request.
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(bytes.len());
    let text = &bytes[start..];
    let end = text.iter().position(|byte| *byte == b'\n');
    let line = &text[..end.unwrap_or(text.len())];
    let request = request_so_far(line);
    if METHODS.iter().any(|method| starts_with_word(line, method)) || mentions_http(request) {
        return Greeting::Http;
    }
    if end.is_some() || request.len() < line.len() {
        return Greeting::Other;
    }
    if bytes.len() > LONGEST_LINE { Greeting::Http } else { Greeting::Unsure }
}

/// As much of a line as could belong to an HTTP request. Servers accept custom methods, and any byte in a path.
fn request_so_far(line: &[u8]) -> &[u8] {
    let word = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let odd = |(at, byte): (usize, &u8)| *byte == 0 || (at < word && !byte.is_ascii_graphic());
    &line[..line.iter().enumerate().position(odd).unwrap_or(line.len())]
}

fn starts_with_word(line: &[u8], word: &[u8]) -> bool {
    line.len() > word.len() && line[..word.len()].eq_ignore_ascii_case(word) && line[word.len()].is_ascii_whitespace()
}

fn mentions_http(line: &[u8]) -> bool {
    line.windows(5).any(|window| window.eq_ignore_ascii_case(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn protocols_are_detected() {
        for (bytes, expected) in [
            (&b""[..], Greeting::Unsure),
            (b"\x16", Greeting::Unsure),
            (b"\x16\x03\x01", Greeting::Tls),
            (b"\x16\x02", Greeting::Other),
            (b"\x80\x2e\x01\x03\x01", Greeting::Other),
            (b"G", Greeting::Unsure),
            (b"GET ", Greeting::Http),
            (b"\r\n\r\nGET /", Greeting::Http),
            (b"get\t/", Greeting::Http),
            (b"CONNECT evil:443", Greeting::Http),
            (b"PRI * HTTP/2.0\r\n", Greeting::Http),
            (b"BREW /pot HTTP/1.1\r\n", Greeting::Http),
            (b"BREW /pot", Greeting::Unsure),
            (b"BREW /p\xf6t", Greeting::Unsure),
            (b"BREW /\x01", Greeting::Unsure),
            (b"BREW\xf6", Greeting::Other),
            (b"BREW /\0", Greeting::Other),
            (b"\x15", Greeting::Unsure),
            (b"\x15\x03\x01\0\x02", Greeting::Tls),
            (b"\x15\x02", Greeting::Other),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", Greeting::Other),
            (b"EHLO me\r\n", Greeting::Other),
            (b"\0\0\0\x08", Greeting::Other),
            (b"\x01 / HTTP/1.1\r\n", Greeting::Other),
            (b"BREW /\0 HTTP/1.1\r\n", Greeting::Other),
            (b"BREW / HTTP/1.1\0", Greeting::Http),
        ] {
            assert_eq!(classify(bytes), expected, "{bytes:?}");
        }
        // A line that is too long is passed to the HTTP parser, which accepts or refuses it.
        assert_eq!(classify(&[b'a'; LONGEST_LINE + 1]), Greeting::Http);
        assert_eq!(classify(&[b'\n'; LONGEST_LINE + 1]), Greeting::Http);
        assert_eq!(classify(&[0xff; LONGEST_LINE + 1]), Greeting::Other);
    }

    proptest! {
        #[test]
        fn an_early_result_holds_for_all_bytes(
            bytes in prop_oneof!["[A-Z]{1,4}[ \t][ -~\u{80}-\u{ff}]{0,9} HTTP/1.1", "[\r\n]{0,4}[a-zA-Z]{1,7} ?", ".{0,9}"],
            [before, after] in [prop::collection::vec(any::<u8>(), 0..3), prop::collection::vec(any::<u8>(), 0..16)],
        ) {
            let bytes = [&before, bytes.as_bytes(), &after].concat();
            let whole = classify(&bytes);
            for end in 0..bytes.len() {
                let early = classify(&bytes[..end]);
                prop_assert!(early == Greeting::Unsure || early == whole, "{early:?} for {:?}", &bytes[..end]);
            }
        }
    }
}
