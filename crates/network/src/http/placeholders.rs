//! Replaces placeholders by secrets in a request. Refuses the request if a placeholder is where replacing it is not
//! safe. No I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;
use zeroize::Zeroizing;

use super::spelling::{Spelling, percent_encode};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::secret::{Secret, SecretSet};

/// The inserted secrets: their names, and further spellings to remove from the response.
#[derive(Default)]
pub struct Placed {
    pub names: Vec<String>,
    pub spellings: Vec<Spelling>,
}

/// Inserts the secrets into a request to `port` of `host`.
pub fn place(secrets: &SecretSet, host: &HostName, port: u16, parts: &mut Parts) -> Result<Placed, Refusal> {
    let mut placed = Placed::default();
    for secret in secrets.iter() {
        let found = in_headers(secret, &mut parts.headers, &mut placed)? | in_uri(secret, &mut parts.uri)?;
        if found && !secret.is_for(host, port) {
            return Err(Refusal::SecretElsewhere);
        }
        if found {
            placed.names.push(secret.name().to_owned());
        }
    }
    if !secrets.bound_to(host, port).is_empty() {
        // Every response is searched for secrets, because the server may have stored an earlier one. So it must not be
        // compressed.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    Ok(placed)
}

/// Whether a request that may not get secrets contains a placeholder.
pub fn mentions(secrets: &SecretSet, parts: &Parts) -> bool {
    secrets.iter().any(|secret| {
        let placeholder = secret.placeholder().as_bytes();
        let in_headers = parts.headers.iter().any(|(name, value)| {
            contains(value.as_bytes(), placeholder)
                || basic(name, value).is_some_and(|text| contains(&text, placeholder))
        });
        in_headers || contains(parts.uri.to_string().as_bytes(), placeholder)
    })
}

fn in_headers(secret: &Secret, headers: &mut HeaderMap, placed: &mut Placed) -> Result<bool, Refusal> {
    let placeholder = secret.placeholder().as_bytes();
    let mut found = false;
    for (name, value) in headers.iter_mut() {
        if contains(name.as_str().as_bytes(), &placeholder.to_ascii_lowercase()) {
            return Err(Refusal::SecretMisplaced);
        }
        let new = if contains(value.as_bytes(), placeholder) {
            replace(value.as_bytes(), placeholder, secret.value().as_bytes())
        } else {
            let Some(text) = basic(name, value).filter(|text| contains(text, placeholder)) else { continue };
            let text = Zeroizing::new(replace(&text, placeholder, secret.value().as_bytes()));
            let encoded = STANDARD.encode(&*text);
            placed.spellings.push(Zeroizing::new(encoded.as_bytes().to_vec()));
            format!("Basic {encoded}").into_bytes()
        };
        *value = HeaderValue::from_bytes(&new).map_err(|_| Refusal::SecretMisplaced)?;
        value.set_sensitive(true);
        found = true;
    }
    Ok(found)
}

/// The decoded user and password of basic authentication.
fn basic(name: &HeaderName, value: &HeaderValue) -> Option<Zeroizing<Vec<u8>>> {
    if name != AUTHORIZATION && name != PROXY_AUTHORIZATION {
        return None;
    }
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    STANDARD.decode(encoded.trim()).ok().map(Zeroizing::new)
}

fn in_uri(secret: &Secret, uri: &mut Uri) -> Result<bool, Refusal> {
    let placeholder = secret.placeholder();
    if contains(uri.path().as_bytes(), placeholder.as_bytes()) {
        return Err(Refusal::SecretMisplaced);
    }
    let Some(query) = uri.query().filter(|query| query.contains(placeholder)) else { return Ok(false) };
    let encoded = Zeroizing::new(percent_encode(secret.value()));
    let target = Zeroizing::new(format!("{}?{}", uri.path(), query.replace(placeholder, &encoded)));
    *uri = target.parse().map_err(|_| Refusal::SecretMisplaced)?;
    Ok(true)
}

pub fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window.first() == wanted.first() && window == wanted)
}

fn replace(bytes: &[u8], wanted: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + by.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(wanted.len()).position(|window| window == wanted) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by);
        rest = &rest[at + wanted.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const PLACEHOLDER: &str = "sandling-placeholder-1";

    fn secrets() -> SecretSet {
        let hosts = vec!["api.example.com".parse().unwrap()];
        SecretSet::new(vec![Secret::new("token", PLACEHOLDER, "s3cr&t value".to_owned(), hosts).unwrap()])
    }

    fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn placed(parts: &mut Parts, host: &str) -> Result<Placed, Refusal> {
        place(&secrets(), &host.parse().unwrap(), 443, parts)
    }

    #[test]
    fn headers_and_queries_get_the_secret() {
        let uri = format!("/v1/x?a=1&key={PLACEHOLDER}");
        let bearer = format!("Bearer {PLACEHOLDER}");
        let mut parts = request(&uri, &[("authorization", &bearer), ("accept-encoding", "gzip")]);
        let placed = placed(&mut parts, "api.example.com").unwrap();
        assert_eq!(placed.names, ["token"]);
        assert_eq!(parts.headers["authorization"], "Bearer s3cr&t value");
        assert_eq!(parts.headers["accept-encoding"], "identity");
        assert_eq!(parts.uri, "/v1/x?a=1&key=s3cr%26t%20value");
    }

    #[test]
    fn basic_authentication_gets_the_secret() {
        let basic = format!("Basic {}", STANDARD.encode(format!("git:{PLACEHOLDER}")));
        let mut parts = request("/", &[("authorization", &basic)]);
        assert!(mentions(&secrets(), &parts));
        placed(&mut parts, "api.example.com").unwrap();
        let expected = format!("Basic {}", STANDARD.encode("git:s3cr&t value"));
        assert_eq!(parts.headers["authorization"], expected);
    }

    #[test]
    fn other_hosts_never_get_the_secret() {
        let mut parts = request("/", &[("x-key", PLACEHOLDER)]);
        assert!(matches!(placed(&mut parts, "evil.com"), Err(Refusal::SecretElsewhere)));
        let mut parts = request(&format!("/?k={PLACEHOLDER}"), &[]);
        assert!(matches!(placed(&mut parts, "example.com"), Err(Refusal::SecretElsewhere)));
    }

    #[test]
    fn placeholders_in_unsafe_places_are_refused() {
        let mut parts = request(&format!("/{PLACEHOLDER}/x"), &[]);
        assert!(matches!(placed(&mut parts, "api.example.com"), Err(Refusal::SecretMisplaced)));
        let mut parts = request("/", &[(PLACEHOLDER, "x")]);
        assert!(matches!(placed(&mut parts, "api.example.com"), Err(Refusal::SecretMisplaced)));
    }

    #[test]
    fn a_request_without_a_placeholder_is_unchanged() {
        let mut parts = request("/a?b=c", &[("accept-encoding", "gzip")]);
        assert!(placed(&mut parts, "api.example.com").unwrap().names.is_empty());
        assert_eq!(
            (&parts.headers["accept-encoding"], parts.uri.to_string().as_str()),
            (&"identity".parse().unwrap(), "/a?b=c")
        );
        let mut parts = request("/a?b=c", &[("accept-encoding", "gzip")]);
        assert!(placed(&mut parts, "evil.com").unwrap().names.is_empty());
        assert_eq!(parts.headers["accept-encoding"], "gzip");
        assert!(!mentions(&secrets(), &parts));
    }
}
