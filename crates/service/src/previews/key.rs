//! Signing preview tokens. A token contains what it allows, with a signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewToken {
    /// The id under which the token can be revoked.
    pub id: String,
    pub workspace: String,
    pub sandbox: String,
    pub port: u16,
    /// Path prefixes. An empty list means all paths.
    pub paths: Vec<String>,
    pub expires_unix: i64,
}

/// Signs and checks preview tokens.
pub(super) struct PreviewKey(Hmac<Sha256>);

impl PreviewKey {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&secret).expect("HMAC takes keys of any length"))
    }

    pub(super) fn sign(&self, token: &PreviewToken) -> String {
        let text = serde_json::to_vec(token).expect("a token has only strings and numbers");
        let text = URL_SAFE_NO_PAD.encode(text);
        let signature = self.0.clone().chain_update(text.as_bytes()).finalize().into_bytes();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A secret for one purpose, always the same. A purpose has a colon, which signed tokens never have.
    pub(super) fn derive(&self, purpose: &str) -> String {
        let bytes = self.0.clone().chain_update(purpose.as_bytes()).finalize().into_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the token allows, if this key signed it and it has not expired. This does not check whether it was revoked.
    pub(super) fn check(&self, signed: &str, now: Timestamp) -> Option<PreviewToken> {
        let (text, signature) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.0.clone().chain_update(text.as_bytes()).verify_slice(&signature).ok()?;
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
        // The server in the sandbox would resolve the dots, so the path that it serves is not known here.
        let hidden =
            path.split('/').any(|part| matches!(part.to_ascii_lowercase().as_str(), ".." | "%2e%2e" | ".%2e" | "%2e."));
        let path_allowed = self.paths.is_empty() || (!hidden && self.paths.iter().any(below));
        self.sandbox == sandbox && self.port == port && path_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(expires_unix: i64) -> PreviewToken {
        let text = str::to_owned;
        PreviewToken { id: text("i"), workspace: text("w"), sandbox: text("s"), port: 80, paths: vec![], expires_unix }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1000).unwrap()
    }

    #[test]
    fn a_signed_token_is_read_back_until_it_expires() {
        let key = PreviewKey::new([7; 32]);
        assert_eq!(key.check(&key.sign(&token(1001)), now()), Some(token(1001)));
        assert_eq!(key.check(&key.sign(&token(1000)), now()), None);
    }

    #[test]
    fn a_token_that_was_changed_or_signed_by_another_key_is_refused() {
        let key = PreviewKey::new([7; 32]);
        let signed = key.sign(&token(2000));
        let (_, signature) = signed.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token(9999)).unwrap());
        for bad in [
            format!("{forged}.{signature}"),
            PreviewKey::new([8; 32]).sign(&token(2000)),
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
        for other in ["/", "/docsx", "/docs/../admin", "/docs/%2E%2e/admin"] {
            assert!(!token.allows("s", 80, other), "{other}");
        }
    }
}
