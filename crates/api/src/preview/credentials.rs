//! Removes our credentials from a request before it goes to a server in a sandbox, whose code could steal them.
//!
//! Every entry point passes through here, so the rule is about values: a header, cookie or parameter in which one of our
//! tokens appears as a word is removed, whatever its name. The page's own credentials are forwarded.

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use sandling_service::{AuthError, DerivedTokens};

use crate::app::App;
use crate::auth::bearer_of;

/// The query parameter of a preview token.
pub(super) const QUERY: &str = "sandling_token";
/// The cookie of a preview token.
pub(super) const COOKIE: &str = "sandling_preview";
/// The header of a preview token.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-sandling-preview-token");

pub(super) fn remove(app: &App, request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    // This includes revoked and expired tokens, which still reveal their owner.
    remove_from(&mut parts, |text| {
        let is_token = !matches!(app.service.tokens.authenticate(text), Err(AuthError::Missing | AuthError::Malformed));
        is_token || DerivedTokens::is_one(text)
    });
    Request::from_parts(parts, body)
}

pub(crate) fn remove_from(parts: &mut Parts, is_ours: impl Fn(&str) -> bool) {
    parts.headers.remove(HEADER);
    let names: Vec<HeaderName> = parts.headers.keys().filter(|name| **name != header::COOKIE).cloned().collect();
    for name in names {
        retain(&mut parts.headers, &name, |value| !has_ours(&name, value, &is_ours));
    }
    retain_cookies(&mut parts.headers, &is_ours);
    if let Some(query) = parts.uri.query() {
        let path = parts.uri.path();
        let rest = match without_ours(query, '&', QUERY, &is_ours) {
            kept if kept.is_empty() => path.to_owned(),
            kept => format!("{path}?{kept}"),
        };
        parts.uri = rest.parse::<Uri>().unwrap_or_else(|_| Uri::from_static("/"));
    }
}

fn has_ours(name: &HeaderName, value: &HeaderValue, is_ours: &impl Fn(&str) -> bool) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    // The referring URL can contain a preview token in its query or path.
    if *name == header::REFERER && [QUERY, "access_token", "/v1/p/"].iter().any(|mark| text.contains(mark)) {
        return true;
    }
    mentions_ours(&text, is_ours) || basic(text.trim()).is_some_and(|pair| mentions_ours(&pair, is_ours))
}

/// Whether a text is one of our tokens or has one among its words, as it is written or decoded.
fn mentions_ours(text: &str, is_ours: &impl Fn(&str) -> bool) -> bool {
    [text, &decoded(text)].into_iter().any(|text| {
        // A token that the operator chose may contain any character.
        let whole = [text.trim(), bearer_of(text.trim()).unwrap_or_default()];
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !['_', '-', '.'].contains(&c));
        whole.into_iter().chain(words).any(is_ours)
    })
}

/// The user and the password of a `Basic` header.
fn basic(text: &str) -> Option<String> {
    let (kind, coded) = text.split_once(' ')?;
    let decoded = STANDARD.decode(coded.trim()).ok().filter(|_| kind.eq_ignore_ascii_case("basic"))?;
    String::from_utf8(decoded).ok()
}

fn retain(headers: &mut HeaderMap, name: &HeaderName, keeps: impl Fn(&HeaderValue) -> bool) {
    let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
    if values.iter().all(&keeps) {
        return;
    }
    headers.remove(name);
    for value in values.into_iter().filter(keeps) {
        headers.append(name, value);
    }
}

fn retain_cookies(headers: &mut HeaderMap, is_ours: &impl Fn(&str) -> bool) {
    let values: Vec<_> = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).collect();
    let kept = without_ours(&values.join("; "), ';', COOKIE, is_ours);
    let kept = kept.trim();
    headers.remove(header::COOKIE);
    if let Some(value) = kept.parse().ok().filter(|_| !kept.is_empty()) {
        headers.insert(header::COOKIE, value);
    }
}

/// The pairs of a list, e.g. of a query, without those that have our name or contain one of our tokens.
fn without_ours(pairs: &str, separator: char, name: &str, is_ours: &impl Fn(&str) -> bool) -> String {
    let ours = |pair: &&str| {
        let (key, value) = pair.trim().split_once('=').unwrap_or((pair.trim(), ""));
        decoded(key) == name || [key, value].iter().any(|part| mentions_ours(part, is_ours))
    };
    let kept: Vec<&str> = pairs.split(separator).filter(|pair| !ours(pair)).collect();
    kept.join(&separator.to_string())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use sandling_wire::native_token;

    use super::*;

    fn without_ours(request: axum::http::request::Builder) -> Parts {
        let mut parts = request.body(()).unwrap().into_parts().0;
        remove_from(&mut parts, |token| token == "abc" || native_token(token).as_deref() == Some("abc"));
        parts
    }

    #[test]
    fn nothing_of_ours_reaches_the_sandbox() {
        let request = Request::get("/a?x=1&sandling_token=abc&y=2&access_token=a%62c&key=abc&abc&sandling%5Ftoken=z")
            .header("cookie", "theirs=1; sandling_preview=abc; more=2; session=abc; abc")
            .header("x-sandling-preview-token", "abc")
            .header("authorization", "Bearer abc")
            .header("authorization", format!("Basic {}", STANDARD.encode("me:abc")))
            .header("x-api-key", "abc")
            .header("x-access-token", "abc")
            .header("x-invented", "bearer abc")
            .header("x-api-key", "e2b_616263")
            .header("x-forwarded-uri", "/?x=%22a%62c%22")
            .header("x-not-ascii", "é abc")
            .header("x-basic", format!("Basic {}", STANDARD.encode("me:{\"key\":\"abc\"}")))
            .header("referer", "http://80-x.localhost/v1/p/abc/?page=1");
        let parts = without_ours(request);
        assert_eq!(parts.uri, "/a?x=1&y=2");
        assert_eq!(parts.headers.get("cookie").unwrap(), "theirs=1; more=2");
        assert_eq!(parts.headers.len(), 1, "{parts:?}");
    }

    #[test]
    fn what_a_page_has_of_its_own_reaches_it() {
        let request = Request::get("/a?access_token=xyz&&empty=&flag")
            .header("authorization", "Bearer xyz")
            .header("authorization", "Basic YWJj")
            .header("x-api-key", "e2b_78797a")
            .header("x-text", "about abcd and x_abc")
            .header("referer", "http://80-x.localhost/a");
        let parts = without_ours(request);
        assert_eq!(parts.uri, "/a?access_token=xyz&&empty=&flag");
        assert_eq!(parts.headers.get_all("authorization").iter().count(), 1);
        assert!(["x-api-key", "x-text", "referer"].iter().all(|name| parts.headers.contains_key(*name)));
    }

    #[test]
    fn a_query_of_the_pages_own_is_passed_on_as_it_was_written() {
        let parts = without_ours(Request::get("/a?q=a%20b+c&x"));
        assert_eq!(parts.uri, "/a?q=a%20b+c&x");
    }
}
