//! Answers a registry's challenge: Basic, or a Bearer token from the server that the registry names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;

use super::client::{Client, Source};
use super::connect::Scheme;
use super::error::RegistryError;
use super::exchange::{self, Outgoing, Url, printable};
use super::options::{Credentials, Role};
use super::retry::retry_after;

const LARGEST_TOKEN: usize = 256 * 1024;
/// How long a token is valid if its server does not say.
const DEFAULT_VALIDITY: u64 = 60;
/// A token is replaced this long before its end.
const MARGIN: Duration = Duration::from_secs(5);
const LONGEST_VALIDITY: u64 = 3600;

pub(super) struct Authorization {
    pub header: HeaderValue,
    expires: Option<Instant>,
}

impl Authorization {
    pub fn is_valid(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() + MARGIN < expires)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    /// In lowercase.
    scheme: String,
    parameters: HashMap<String, String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Client {
    /// The header that satisfies the challenge in these headers. None if that takes credentials that there are not.
    pub(super) async fn authorize(
        &self,
        source: &Source,
        headers: &HeaderMap,
        registry: Option<IpAddr>,
    ) -> Result<Option<Authorization>, RegistryError> {
        let challenges = challenges(headers);
        let find = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme == scheme);
        let credentials = (self.options.credentials)(&source.registry).ok().flatten();
        if let Some(challenge) = find("bearer") {
            return self.token(source, challenge, credentials, registry).await.map(Some);
        }
        if find("basic").is_some() {
            let Some(Credentials::Basic { username, password }) = credentials else { return Ok(None) };
            return Ok(Some(Authorization { header: basic(&username, &password), expires: None }));
        }
        let challenge = challenges.first().map_or("", |challenge| &challenge.scheme);
        Err(RegistryError::UnknownChallenge { registry: source.registry.clone(), challenge: printable(challenge, 50) })
    }

    async fn token(
        &self,
        source: &Source,
        challenge: &Challenge,
        credentials: Option<Credentials>,
        registry: Option<IpAddr>,
    ) -> Result<Authorization, RegistryError> {
        let realm = challenge.parameters.get("realm").map_or("", String::as_str);
        let bad_realm = || RegistryError::NoToken {
            host: printable(realm, 100),
            why: format!("{} names it, but it is not a URL", source.registry),
        };
        let mut url = Url::parse(realm, Role::Other).ok_or_else(bad_realm)?;
        if url.scheme == Scheme::Http && self.scheme(source).await? == Scheme::Https {
            let to = format!("http://{}", url.endpoint);
            return Err(RegistryError::Downgrade { host: source.registry.clone(), to });
        }
        let has_credentials = credentials.is_some();
        let outgoing = token_request(&mut url, source, challenge, credentials);
        let reply = exchange::send(&self.connector, &self.options.timeouts, &outgoing, registry).await?;
        let host = reply.sender.host.clone();
        match reply.status.as_u16() {
            200..=299 => {}
            // Servers answer 400 to a refresh token that is no longer valid.
            400 | 401 | 403 if has_credentials => return Err(source.credentials_refused()),
            401 | 403 => return Err(self.credentials_needed(source)),
            429 => {
                let retry_after = retry_after(&reply.headers, jiff::Timestamp::now());
                return Err(RegistryError::RateLimited { host, retry_after });
            }
            status @ 500.. => {
                let message = reply.message(&self.options.timeouts).await;
                return Err(RegistryError::ServerError { host, status, message });
            }
            status => return Err(RegistryError::NoToken { host, why: format!("it answered {status}") }),
        }
        let bytes = reply.document("a token", LARGEST_TOKEN, &self.options.timeouts).await?;
        let no_token = |why: &str| RegistryError::NoToken { host: host.clone(), why: why.to_owned() };
        let answer: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| no_token("its answer is not JSON"))?;
        let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| no_token("its answer has none"))?;
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| no_token("it is malformed"))?;
        header.set_sensitive(true);
        let seconds = answer.expires_in.unwrap_or(DEFAULT_VALIDITY).clamp(DEFAULT_VALIDITY, LONGEST_VALIDITY);
        Ok(Authorization { header, expires: Some(Instant::now() + Duration::from_secs(seconds)) })
    }
}

fn token_request(url: &mut Url, source: &Source, challenge: &Challenge, credentials: Option<Credentials>) -> Outgoing {
    let default_scope = format!("repository:{}:pull", source.repository);
    let scope = challenge.parameters.get("scope").cloned().unwrap_or(default_scope);
    // A token for no repository only shows that the credentials are right.
    let mut fields = if source.repository.is_empty() { Vec::new() } else { vec![("scope", scope)] };
    if let Some(service) = challenge.parameters.get("service") {
        fields.push(("service", service.clone()));
    }
    if let Some(Credentials::IdentityToken(token)) = credentials {
        fields.extend([
            ("grant_type", "refresh_token".to_owned()),
            ("client_id", "sandling".to_owned()),
            ("refresh_token", token),
        ]);
        let headers = vec![(CONTENT_TYPE, "application/x-www-form-urlencoded".to_owned())];
        let body = Bytes::from(encoded(&fields));
        return Outgoing { method: Method::POST, url: url.clone(), headers, authorization: None, body };
    }
    let joint = if url.path.contains('?') { '&' } else { '?' };
    url.path = format!("{}{joint}{}", url.path, encoded(&fields));
    let authorization = match &credentials {
        Some(Credentials::Basic { username, password }) => Some(basic(username, password)),
        _ => None,
    };
    Outgoing { method: Method::GET, url: url.clone(), headers: Vec::new(), authorization, body: Bytes::new() }
}

fn encoded(fields: &[(&str, String)]) -> String {
    serde_urlencoded::to_string(fields).expect("pairs of strings can be encoded")
}

fn basic(username: &str, password: &str) -> HeaderValue {
    let text = format!("Basic {}", STANDARD.encode(format!("{username}:{password}")));
    let mut header = HeaderValue::try_from(text).expect("base64 fits in a header");
    header.set_sensitive(true);
    header
}

/// Parses all challenges of all headers: `scheme name=value, name="value", scheme …`.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut rest = text.trim_start_matches([' ', ',', '\t']);
        while !rest.is_empty() {
            let end = rest.find([' ', '=', ',', '\t']).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if let Some(after) = rest.strip_prefix('=') {
                let (value, after) = parameter_value(after);
                rest = after;
                if let Some(challenge) = found.last_mut() {
                    challenge.parameters.insert(word.to_ascii_lowercase(), value);
                }
            } else if !word.is_empty() {
                found.push(Challenge { scheme: word.to_ascii_lowercase(), parameters: HashMap::new() });
            }
            rest = rest.trim_start_matches([' ', ',', '\t']);
        }
    }
    found
}

/// A token, or a quoted string with backslashes before quotes. Returns the text after it as well.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([' ', ',', '\t']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, char)| char)),
            char => value.push(char),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_found_in_one_header_or_several() {
        let mut headers = HeaderMap::new();
        let bearer = r#"Bearer realm="https://auth.example/token?a=b,c",service="reg \"x\"", scope=repository:a:pull"#;
        headers.append(WWW_AUTHENTICATE, bearer.parse().unwrap());
        headers.append(WWW_AUTHENTICATE, r#"Basic realm="x", Negotiate"#.parse().unwrap());
        let found = challenges(&headers);
        let schemes: Vec<_> = found.iter().map(|challenge| challenge.scheme.as_str()).collect();
        assert_eq!(schemes, ["bearer", "basic", "negotiate"]);
        assert_eq!(found[0].parameters["realm"], "https://auth.example/token?a=b,c");
        assert_eq!(found[0].parameters["service"], "reg \"x\"");
        assert_eq!(found[0].parameters["scope"], "repository:a:pull");
        for strange in ["", "=", "Bearer realm=\"", ",,,", "Bearer =x \\", "\"\"\"", "= = ="] {
            headers.clear();
            headers.append(WWW_AUTHENTICATE, strange.parse().unwrap());
            challenges(&headers);
        }
    }
}
