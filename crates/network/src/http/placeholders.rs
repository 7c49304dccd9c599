//! Replaces placeholders by secrets in a request. Refuses the request if a placeholder is anywhere but at one of its
//! secret's placements. No I/O.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_RANGE, PROXY_AUTHORIZATION, RANGE,
};
use hyper::http::request::Parts;
use memchr::memmem;
use zeroize::Zeroizing;

use super::pattern::{Pattern, percent_encode};
use crate::name::HostName;
use crate::placement::Placement;
use crate::policy::Refusal;
use crate::secret::{Secret, SecretSet};

/// The inserted secrets: their names, and further patterns to mask in the response.
#[derive(Default)]
pub struct Placed {
    pub names: Vec<String>,
    pub patterns: Vec<Pattern>,
}

/// A refused request.
#[derive(Debug)]
pub struct Denied {
    pub why: Refusal,
    /// What happened in this case and how to allow it.
    pub detail: Option<String>,
}

impl From<Refusal> for Denied {
    fn from(why: Refusal) -> Denied {
        Denied { why, detail: None }
    }
}

impl Denied {
    /// A placeholder is at `place`, which `wanted` would allow.
    fn misplaced(secret: &Secret, place: &str, wanted: Option<Placement>) -> Denied {
        let allowed: Vec<String> = secret.placements().iter().map(Placement::to_string).collect();
        let advice = match wanted {
            Some(wanted) => format!("to allow this, store the secret again with {}", wanted.option()),
            None => "a placeholder must be the whole value, or follow the prefix that its placement names".to_owned(),
        };
        let (name, allowed) = (secret.name(), allowed.join(", "));
        let detail = format!(
            "the placeholder of the secret {name} is in {place}, but this secret may be placed only in: {allowed}; {advice}"
        );
        Denied { why: Refusal::SecretMisplaced, detail: Some(detail) }
    }
}

/// Inserts the secrets into a request to `port` of `host`.
pub fn place(secrets: &SecretSet, host: &HostName, port: u16, parts: &mut Parts) -> Result<Placed, Denied> {
    let mut placed = Placed::default();
    for secret in secrets.iter() {
        if !mentions(secret, parts) {
            continue;
        }
        if !secret.is_for(host, port) {
            return Err(Refusal::SecretElsewhere.into());
        }
        place_in_headers(secret, &mut parts.headers, &mut placed)?;
        place_in_uri(secret, &mut parts.uri)?;
        placed.names.push(secret.name().to_owned());
    }
    if !secrets.bound_to(host, port).is_empty() {
        // Every response is searched for secrets, because the server may have stored an earlier one. So it must be
        // neither compressed nor a part of a larger text, which could end in the middle of a secret.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for name in [RANGE, IF_RANGE] {
            parts.headers.remove(name);
        }
    }
    Ok(placed)
}

/// Whether a request contains the placeholder of a secret.
pub fn mentions(secret: &Secret, parts: &Parts) -> bool {
    let placeholder = secret.placeholder().as_bytes();
    let in_headers = parts.headers.iter().any(|(name, value)| {
        contains(name.as_str().as_bytes(), &placeholder.to_ascii_lowercase())
            || contains(value.as_bytes(), placeholder)
            || basic_credentials(name, value).is_some_and(|text| contains(text.as_bytes(), placeholder))
    });
    in_headers || contains(parts.uri.to_string().as_bytes(), placeholder)
}

fn place_in_headers(secret: &Secret, headers: &mut HeaderMap, placed: &mut Placed) -> Result<(), Denied> {
    let (placeholder, value) = (secret.placeholder(), secret.value());
    for (name, header) in headers.iter_mut() {
        if contains(name.as_str().as_bytes(), placeholder.to_ascii_lowercase().as_bytes()) {
            return Err(Refusal::SecretMisplaced.into());
        }
        let text = Zeroizing::new(String::from_utf8_lossy(header.as_bytes()).into_owned());
        let new = if let Some((before, after)) = text.split_once(placeholder) {
            if !secret.placements().iter().any(|placement| placement.allows_header(name.as_str(), before, after)) {
                let wanted = format!("header {name}: {before}").parse().ok().filter(|_| after.trim().is_empty());
                return Err(Denied::misplaced(secret, &format!("the header {name:.64}"), wanted));
            }
            text.replace(placeholder, value)
        } else {
            let Some(text) = basic_credentials(name, header).filter(|text| text.contains(placeholder)) else {
                continue;
            };
            check_basic(secret, name, &text)?;
            let encoded = STANDARD.encode(Zeroizing::new(text.replace(placeholder, value)).as_bytes());
            placed.patterns.push(Pattern::base64(&encoded));
            format!("Basic {encoded}")
        };
        *header = HeaderValue::from_bytes(Zeroizing::new(new).as_bytes()).map_err(|_| Refusal::SecretMisplaced)?;
        header.set_sensitive(true);
    }
    Ok(())
}

/// Checks that the placeholder is the user or the password, and that the secret may be placed there.
fn check_basic(secret: &Secret, name: &HeaderName, credentials: &str) -> Result<(), Denied> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let whole = name == AUTHORIZATION && (user == secret.placeholder() || password == secret.placeholder());
    let allowed = |placement: &Placement| match placement {
        Placement::Basic => whole,
        Placement::AnyHeader => true,
        Placement::Header { .. } | Placement::Query(_) => false,
    };
    if secret.placements().iter().any(allowed) {
        return Ok(());
    }
    Err(Denied::misplaced(secret, "basic authentication", whole.then_some(Placement::Basic)))
}

/// The decoded user and password of basic authentication.
fn basic_credentials(name: &HeaderName, value: &HeaderValue) -> Option<Zeroizing<String>> {
    if name != AUTHORIZATION && name != PROXY_AUTHORIZATION {
        return None;
    }
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    Some(Zeroizing::new(String::from_utf8_lossy(&decoded).into_owned()))
}

fn place_in_uri(secret: &Secret, uri: &mut Uri) -> Result<(), Denied> {
    let placeholder = secret.placeholder();
    if uri.path().contains(placeholder) {
        return Err(Refusal::SecretMisplaced.into());
    }
    let Some(query) = uri.query().filter(|query| query.contains(placeholder)) else { return Ok(()) };
    let encoded = Zeroizing::new(percent_encode(secret.value()));
    let pairs: Vec<Cow<'_, str>> =
        query.split('&').map(|pair| place_in_pair(secret, pair, &encoded)).collect::<Result<_, _>>()?;
    let target = Zeroizing::new(format!("{}?{}", uri.path(), pairs.join("&")));
    *uri = target.parse().map_err(|_| Refusal::SecretMisplaced)?;
    Ok(())
}

/// Inserts the secret into one `key=value` of a query.
fn place_in_pair<'a>(secret: &Secret, pair: &'a str, encoded: &str) -> Result<Cow<'a, str>, Denied> {
    let placeholder = secret.placeholder();
    if !pair.contains(placeholder) {
        return Ok(pair.into());
    }
    let (key, value) = pair.split_once('=').unwrap_or(("", pair));
    let names =
        |placement: &Placement| matches!(placement, Placement::Query(own) if own == key || percent_encode(own) == key);
    if value == placeholder && secret.placements().iter().any(names) {
        return Ok(format!("{key}={encoded}").into());
    }
    let wanted = format!("query {key}").parse().ok().filter(|_| value == placeholder);
    Err(Denied::misplaced(secret, &format!("the query's key {key:.64}"), wanted))
}

pub fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    memmem::find(bytes, wanted).is_some()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const PLACEHOLDER: &str = "sandling-placeholder-1";

    fn secrets(placements: &[&str]) -> SecretSet {
        let hosts = vec!["api.example.com".parse().unwrap()];
        let placements = placements.iter().map(|text| text.parse().unwrap()).collect();
        let value = "s3cr&t value".to_owned();
        SecretSet::new(vec![Secret::new("TOKEN", PLACEHOLDER, value, hosts, placements).unwrap()])
    }

    fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn place_at(placements: &[&str], host: &str, parts: &mut Parts) -> Result<Placed, Denied> {
        place(&secrets(placements), &host.parse().unwrap(), 443, parts)
    }

    /// Why a request is refused, with the detail for people.
    fn denial(placements: &[&str], mut parts: Parts) -> (Refusal, String) {
        let denied = place_at(placements, "api.example.com", &mut parts).err().unwrap();
        (denied.why, denied.detail.unwrap_or_default())
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", STANDARD.encode(credentials))
    }

    #[test]
    fn headers_and_queries_get_the_secret() {
        let uri = format!("/v1/x?a=1&key={PLACEHOLDER}");
        let bearer = format!("Bearer {PLACEHOLDER}");
        let mut parts = request(&uri, &[("authorization", &bearer), ("accept-encoding", "gzip")]);
        let placements = ["header Authorization: Bearer", "query key"];
        let placed = place_at(&placements, "api.example.com", &mut parts).unwrap();
        assert_eq!(placed.names, ["TOKEN"]);
        assert_eq!(parts.headers["authorization"], "Bearer s3cr&t value");
        assert_eq!(parts.headers["accept-encoding"], "identity");
        assert_eq!(parts.uri, "/v1/x?a=1&key=s3cr%26t%20value");
    }

    #[test]
    fn basic_authentication_gets_the_secret() {
        for (sent, expected) in
            [(format!("git:{PLACEHOLDER}"), "git:s3cr&t value"), (format!("{PLACEHOLDER}:"), "s3cr&t value:")]
        {
            let mut parts = request("/", &[("authorization", &basic(&sent))]);
            place_at(&["basic"], "api.example.com", &mut parts).unwrap();
            assert_eq!(parts.headers["authorization"], basic(expected));
        }
        let parts = request("/", &[("authorization", &basic(&format!("git:x{PLACEHOLDER}")))]);
        assert_eq!(denial(&["basic"], parts).0, Refusal::SecretMisplaced);
    }

    #[test]
    fn the_secret_goes_nowhere_but_to_its_placements() {
        let all = ["header Authorization: Bearer", "header x-api-key", "query key", "basic"];
        let bearer = format!("Bearer {PLACEHOLDER}");
        let cases = [
            (request("/", &[("authorization", &bearer)]), all[0], "--header 'authorization: Bearer'"),
            (request("/", &[("x-api-key", PLACEHOLDER)]), all[1], "--header 'x-api-key'"),
            (request(&format!("/?key={PLACEHOLDER}"), &[]), all[2], "--query 'key'"),
            (request("/", &[("authorization", &basic(&format!("git:{PLACEHOLDER}")))]), all[3], "--basic"),
        ];
        for (parts, own, advice) in cases {
            for placement in all {
                if placement == own {
                    assert_eq!(place_at(&[placement], "api.example.com", &mut parts.clone()).unwrap().names, ["TOKEN"]);
                    continue;
                }
                let (why, detail) = denial(&[placement], parts.clone());
                assert_eq!(why, Refusal::SecretMisplaced);
                assert!(detail.contains("TOKEN") && detail.ends_with(advice), "{detail}");
                assert!(detail.contains(&format!("only in: {placement};")), "{detail}");
            }
        }
    }

    #[test]
    fn a_placeholder_among_other_text_is_refused() {
        let (_, detail) = denial(&["query key"], request(&format!("/?key=my+{PLACEHOLDER}"), &[]));
        assert!(detail.contains("must be the whole value"), "{detail}");
        for header in [format!("{PLACEHOLDER} and more"), format!("{PLACEHOLDER}{PLACEHOLDER}")] {
            let (_, detail) = denial(&["header x-note"], request("/", &[("x-note", &header)]));
            assert!(detail.contains("the header x-note") && detail.contains("whole value"), "{detail}");
        }
        let long = format!("/?{}={PLACEHOLDER}", "k".repeat(5000));
        assert!(denial(&["query key"], request(&long, &[])).1.len() < 500);
    }

    #[test]
    fn a_secret_from_before_placements_fits_any_header_and_no_query() {
        let older = ["any header"];
        for header in [PLACEHOLDER.to_owned(), format!("a {PLACEHOLDER} b"), basic(&format!("a:b{PLACEHOLDER}"))] {
            let mut parts = request("/", &[("authorization", &header)]);
            assert_eq!(place_at(&older, "api.example.com", &mut parts).unwrap().names, ["TOKEN"]);
        }
        let (why, detail) = denial(&older, request(&format!("/?key={PLACEHOLDER}"), &[]));
        assert_eq!(why, Refusal::SecretMisplaced);
        assert!(detail.ends_with("--query 'key'"), "{detail}");
    }

    #[test]
    fn other_hosts_never_get_the_secret() {
        for mut parts in [request("/", &[("x-key", PLACEHOLDER)]), request(&format!("/?k={PLACEHOLDER}"), &[])] {
            let denied = place_at(&["header x-key", "query k"], "evil.com", &mut parts).err().unwrap();
            assert_eq!(denied.why, Refusal::SecretElsewhere);
        }
    }

    #[test]
    fn placeholders_in_paths_and_header_names_are_refused() {
        for parts in [request(&format!("/{PLACEHOLDER}/x"), &[]), request("/", &[(PLACEHOLDER, "x")])] {
            assert_eq!(denial(&["any header"], parts).0, Refusal::SecretMisplaced);
        }
    }

    #[test]
    fn a_request_without_a_placeholder_is_unchanged_except_for_encodings_and_ranges() {
        let headers = [("accept-encoding", "gzip"), ("range", "bytes=0-9"), ("if-range", "\"x\"")];
        let mut parts = request("/a?b=c", &headers);
        assert!(place_at(&["basic"], "api.example.com", &mut parts).unwrap().names.is_empty());
        assert_eq!(
            (&parts.headers["accept-encoding"], parts.uri.to_string().as_str()),
            (&"identity".parse().unwrap(), "/a?b=c")
        );
        assert!(!parts.headers.contains_key("range") && !parts.headers.contains_key("if-range"));
        let mut parts = request("/a?b=c", &headers);
        assert!(place_at(&["basic"], "evil.com", &mut parts).unwrap().names.is_empty());
        assert_eq!((&parts.headers["accept-encoding"], parts.headers.len()), (&"gzip".parse().unwrap(), 3));
    }
}
