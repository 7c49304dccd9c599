//! What protocol a connection speaks, by the first bytes of whoever opened it. Pure; the bytes are hostile.

/// What the first bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    Tls,
    /// HTTP of any version, well-formed or not: a parser that takes no chances reads it next.
    Http,
    Other,
    /// More bytes are needed.
    Unsure,
}

/// The longest first line that is waited for.
const LONGEST_LINE: usize = 8 * 1024;
/// Type and first version byte of a TLS handshake record.
const TLS_RECORD: [u8; 2] = [0x16, 0x03];
/// Methods, and the greeting of HTTP/2.
const METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"PRI"];

/// Tells the protocol from the bytes so far. When in doubt between HTTP and another text, HTTP: it is the one with
/// names to check.
pub fn classify(bytes: &[u8]) -> Greeting {
    match bytes {
        [] => return Greeting::Unsure,
        [first, ..] if *first == TLS_RECORD[0] => {
            return match bytes.get(1) {
                None => Greeting::Unsure,
                Some(second) if *second == TLS_RECORD[1] => Greeting::Tls,
                Some(_) => Greeting::Other,
            };
        }
        _ => {}
    }
    // Servers skip empty lines before a request.
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(bytes.len());
    let text = &bytes[start..];
    let end = text.iter().position(|byte| *byte == b'\n');
    let line = &text[..end.unwrap_or(text.len())];
    if METHODS.iter().any(|method| starts_with_word(line, method)) || mentions_http(line) {
        return Greeting::Http;
    }
    let printable = line.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if end.is_some() || !printable || bytes.len() > LONGEST_LINE { Greeting::Other } else { Greeting::Unsure }
}

fn starts_with_word(line: &[u8], word: &[u8]) -> bool {
    line.len() > word.len() && line[..word.len()].eq_ignore_ascii_case(word) && line[word.len()].is_ascii_whitespace()
}

fn mentions_http(line: &[u8]) -> bool {
    line.windows(5).any(|window| window.eq_ignore_ascii_case(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_apart() {
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
            (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", Greeting::Other),
            (b"EHLO me\r\n", Greeting::Other),
            (b"\0\0\0\x08", Greeting::Other),
        ] {
            assert_eq!(classify(bytes), expected, "{bytes:?}");
        }
        assert_eq!(classify(&[b'a'; LONGEST_LINE + 1]), Greeting::Other);
    }
}
