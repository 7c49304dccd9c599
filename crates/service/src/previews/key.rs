//! Signing preview tokens. A token contains what it allows, with a signature.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewToken {
    /// The id under which the token can be revoked.
    pub id: String,
    /// The prefix of the API token that the preview token was made with, and ends with. Tokens of older versions have
    /// none; they expire within a week.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    pub workspace: String,
    pub sandbox: String,
    pub port: u16,
    /// Path prefixes. An empty list means all paths.
    pub paths: Vec<String>,
    pub expires_unix: i64,
}

/// Signs and checks preview tokens and derived tokens. Clones are cheap, and are the same key.
#[derive(Clone)]
pub struct SigningKey {
    own: Hmac<Sha256>,
    /// Keys of other nodes, whose sandboxes have moved here. They only check.
    others: Arc<RwLock<Vec<Hmac<Sha256>>>>,
}

fn hmac(secret: [u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(&secret).expect("HMAC takes keys of any length")
}

impl SigningKey {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self { own: hmac(secret), others: Arc::default() }
    }

    pub(crate) fn trust(&self, secret: [u8; 32]) {
        self.others.write().unwrap_or_else(PoisonError::into_inner).push(hmac(secret));
    }

    fn all(&self) -> Vec<Hmac<Sha256>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.own).chain(others.iter()).cloned().collect()
    }

    pub(crate) fn sign(&self, token: &PreviewToken) -> String {
        let text = serde_json::to_vec(token).expect("a token has only strings and numbers");
        let text = URL_SAFE_NO_PAD.encode(text);
        let signature = self.own.clone().chain_update(text.as_bytes()).finalize().into_bytes();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The signatures of a text for another use, that of the own key first. The text must have a colon, which preview tokens
    /// never have.
    pub(crate) fn macs(&self, text: &str) -> impl Iterator<Item = Hmac<Sha256>> + use<> {
        self.all().into_iter().map(|key| key.chain_update(text.as_bytes())).collect::<Vec<_>>().into_iter()
    }

    /// What the token allows, if this key signed it and it has not expired. This does not check whether it was revoked.
    pub(crate) fn check(&self, signed: &str, now: Timestamp) -> Option<PreviewToken> {
        let (text, signature) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.macs(text).any(|mac| mac.verify_slice(&signature).is_ok()).then_some(())?;
        let token: PreviewToken = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (now.as_second() < token.expires_unix).then_some(token)
    }
}

impl PreviewToken {
    /// Whether the token opens this path of this port of this sandbox.
    pub fn allows(&self, sandbox: &str, port: u16, path: &str) -> bool {
        let below = |prefix: &String| {
            let prefix = prefix.trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let path_allowed = self.paths.is_empty() || (!is_ambiguous(path) && self.paths.iter().any(below));
        self.sandbox == sandbox && self.port == port && path_allowed
    }
}

/// Whether a server could read a path as a path in another directory: it may decode `%2f` before it splits the path,
/// resolve dots, decode twice, take `\\` for `/`, or drop what follows a `;`.
fn is_ambiguous(path: &str) -> bool {
    let Ok(decoded) = percent_decode_str(path).decode_utf8() else { return true };
    let separators = |text: &str| text.matches('/').count();
    let is_dots = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
    separators(&decoded) != separators(path)
        || decoded.contains(|character: char| matches!(character, '\\' | '%') || character.is_control())
        || decoded.split('/').any(is_dots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(expires_unix: i64) -> PreviewToken {
        let text = str::to_owned;
        PreviewToken {
            id: text("i"),
            origin: text("o"),
            workspace: text("w"),
            sandbox: text("s"),
            port: 80,
            paths: vec![],
            expires_unix,
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1000).unwrap()
    }

    #[test]
    fn a_signed_token_is_read_back_until_it_expires() {
        let key = SigningKey::new([7; 32]);
        assert_eq!(key.check(&key.sign(&token(1001)), now()), Some(token(1001)));
        assert_eq!(key.check(&key.sign(&token(1000)), now()), None);
    }

    #[test]
    fn a_token_that_was_changed_or_signed_by_another_key_is_refused() {
        let key = SigningKey::new([7; 32]);
        let signed = key.sign(&token(2000));
        let (_, signature) = signed.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token(9999)).unwrap());
        for bad in [
            format!("{forged}.{signature}"),
            SigningKey::new([8; 32]).sign(&token(2000)),
            String::new(),
            ".".to_owned(),
        ] {
            assert_eq!(key.check(&bad, now()), None, "{bad}");
        }
    }

    #[test]
    fn a_token_opens_its_own_sandbox_port_and_paths() {
        let mut token = token(2000);
        assert!(token.allows("s", 80, "/x") && !token.allows("t", 80, "/x") && !token.allows("s", 81, "/x"));
        token.paths = vec!["/docs/".to_owned()];
        assert!(token.allows("s", 80, "/docs") && token.allows("s", 80, "/docs/a"));
        assert!(token.allows("s", 80, "/docs/a%20b;v=1/...") && token.allows("s", 80, "/docs//a"));
        for other in ["/", "/docsx", "/docs/../admin", "/docs/%2E%2e/admin"] {
            assert!(!token.allows("s", 80, other), "{other}");
        }
    }

    /// The paths that a server could take a path for.
    fn readings(path: &str) -> Vec<String> {
        let mut texts = vec![path.to_owned()];
        for _ in 0..3 {
            texts.push(percent_decode_str(texts.last().unwrap()).decode_utf8_lossy().into_owned());
        }
        texts.extend(texts.clone().iter().map(|text| text.replace('\\', "/")));
        texts.extend(texts.clone().iter().map(|text| {
            let parts = text.split('/').map(|part| part.split(';').next().unwrap_or_default());
            parts.collect::<Vec<_>>().join("/")
        }));
        texts.iter().map(|text| resolved(text)).collect()
    }

    fn resolved(path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    proptest! {
        #[test]
        fn no_server_takes_an_allowed_path_for_another_directory(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "/", "pub", "priv", ".", "..", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", ";", ";x", "%25", "%252e",
                "%252f", "%3b", "%00", "%c0%ae", "a", "%61", "?",
            ]), 0..9),
        ) {
            let token = PreviewToken { paths: vec!["/pub".to_owned()], ..token(2000) };
            let path = format!("/pub{}", parts.concat());
            if token.allows("s", 80, &path) {
                for reading in readings(&path) {
                    prop_assert!(reading == "/pub" || reading.starts_with("/pub/"), "{} reads as {}", path, reading);
                }
            }
        }
    }
}
