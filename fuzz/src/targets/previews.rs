//! A request for a server in a sandbox: our credentials do not reach the server, and a token for `/pub` opens nothing
//! else. The first line is the path, the next ones are headers.

use axum::http::header::{HeaderName, HeaderValue};
use axum::http::{Request, Uri};
use sandling_api::fuzzing::{prepare_for_guest, preview_host, range};
use sandling_service::PreviewToken;

use crate::input::text;

/// A text that stands for one of our tokens.
const OURS: &str = "sdl_0123456789abcdef";

pub fn run(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.lines();
    let path = lines.next().unwrap_or_default();
    check_path(path);
    let Ok(uri) = path.parse::<Uri>() else { return };
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        preview_host(value.trim());
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim())) {
            request.headers_mut().append(name, value);
        }
    }
    if let Some((first, length)) = range(request.headers(), 1000) {
        assert!(first + length <= 1000);
    }
    let (mut parts, ()) = request.into_parts();
    prepare_for_guest(&mut parts, |token| token == OURS);
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        assert!(!mentions_ours(&value), "{name}: {value}");
        let cookies = value.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        assert!(name != "cookie" || cookies.into_iter().all(|(name, _)| name != "sandling_preview"), "{value}");
    }
    let query = parts.uri.query().unwrap_or_default();
    assert!(!mentions_ours(query), "{query}");
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    assert!(pairs.into_iter().all(|(name, _)| name != "sandling_token"), "{query}");
}

/// Whether our token is a word of the text, as it is written or decoded.
fn mentions_ours(text: &str) -> bool {
    let is_part_of_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    [text, &decoded(text)].iter().any(|text| text.split(|c| !is_part_of_word(c)).any(|word| word == OURS))
}

/// An allowed path stays below its directory in whichever way a server reads it.
fn check_path(path: &str) {
    let token = PreviewToken {
        id: String::new(),
        origin: String::new(),
        workspace: String::new(),
        sandbox: "s".to_owned(),
        port: 80,
        paths: vec!["/pub".to_owned()],
        expires_unix: 1,
    };
    if !token.allows("s", 80, path) {
        return;
    }
    let mut readings = vec![path.to_owned()];
    for _ in 0..3 {
        readings.push(decoded(readings.last().expect("there is one")));
    }
    readings.extend(readings.clone().iter().map(|text| text.replace('\\', "/")));
    readings.extend(readings.clone().iter().map(|text| {
        let parts = text.split('/').map(|part| part.split(';').next().unwrap_or_default());
        parts.collect::<Vec<_>>().join("/")
    }));
    for reading in readings {
        let mut parts: Vec<&str> = Vec::new();
        for part in reading.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        assert_eq!(parts.first(), Some(&"pub"), "{path} reads as {reading}");
    }
}

/// The text with `%2f` and the like replaced.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
