//! The dashboard's files.

use std::io::Read;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use flate2::read::GzDecoder;
use sandling_dashboard::{File, find};

const INDEX: &str = "index.html";
/// Scripts come from this origin only, and nothing is loaded from anywhere else. Styles may be inline, because the
/// terminal and the editor make theirs at run time.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const MISSING: &str = include_str!("missing.html");

pub(super) async fn root() -> Redirect {
    Redirect::temporary("/dashboard/")
}

pub(super) async fn page(headers: HeaderMap) -> Response {
    respond(INDEX, &headers)
}

pub(super) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    // Addresses of pages have no file; the script in the index shows them.
    let is_file = path.starts_with("assets/") || find(&path).is_some();
    respond(if is_file { &path } else { INDEX }, &headers)
}

fn respond(path: &str, headers: &HeaderMap) -> Response {
    let mut response = match find(path) {
        Some(file) => content(file, headers),
        None if path == INDEX => {
            (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], MISSING).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn content(file: &'static File, headers: &HeaderMap) -> Response {
    // The names of all other files contain a hash of their content.
    let cache = if file.path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let common =
        [(header::CONTENT_TYPE, kind(file.path)), (header::CACHE_CONTROL, cache), (header::VARY, "accept-encoding")];
    if accepts(headers, "br") {
        (common, [(header::CONTENT_ENCODING, "br")], file.brotli).into_response()
    } else if accepts(headers, "gzip") {
        (common, [(header::CONTENT_ENCODING, "gzip")], file.gzip).into_response()
    } else {
        let mut plain = Vec::new();
        match GzDecoder::new(file.gzip).read_to_end(&mut plain) {
            Ok(_) => (common, plain).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut encodings = accepted.split(',').map(|one| one.split(';').map(str::trim));
    encodings.any(|mut one| one.next() == Some(encoding) && one.next().is_none_or(|quality| quality != "q=0"))
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_counts_unless_it_is_excluded() {
        let mut headers = HeaderMap::new();
        assert!(!accepts(&headers, "gzip"));
        headers.insert(header::ACCEPT_ENCODING, "deflate, gzip;q=0.5, br;q=0".parse().unwrap());
        assert!(accepts(&headers, "gzip") && !accepts(&headers, "br"));
    }

    #[test]
    fn no_script_may_be_inline_or_come_from_elsewhere() {
        assert!(POLICY.contains("default-src 'none'; script-src 'self';"));
        assert!(!POLICY.contains("http") && !POLICY.contains('*') && !POLICY.contains("unsafe-eval"));
    }

    #[test]
    fn every_page_has_the_policy_with_or_without_a_built_dashboard() {
        for path in [INDEX, "assets/none.js"] {
            let response = respond(path, &HeaderMap::new());
            assert!(HEADERS.iter().all(|(name, _)| response.headers().contains_key(name)), "{path}");
        }
        assert!(MISSING.contains("scripts/dashboard.sh") && !MISSING.contains("<script"));
    }
}
