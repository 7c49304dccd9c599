//! Credentials that the server derives from a token, e.g. a sandbox's access token or a ticket for an upload.
//!
//! A derived token names the token that it comes from, its origin. It works only as long as its origin works: when the
//! origin is revoked or expires, everything derived from it ends with it. Nothing is stored. The text is
//! `{origin}.{signature}`, or `{origin}.{expiry}.{signature}` for a token that also expires by itself.

use hmac::Mac;
use jiff::Timestamp;

use crate::previews::SigningKey;
use crate::tokens::{Origin, Principal, Tokens};
use crate::workspaces::WorkspaceName;

/// Issues and checks derived tokens. Clones are cheap.
#[derive(Clone)]
pub struct DerivedTokens {
    key: SigningKey,
    tokens: Tokens,
}

impl DerivedTokens {
    pub(crate) fn new(key: SigningKey, tokens: Tokens) -> Self {
        Self { key, tokens }
    }

    /// A token for one purpose that works as long as its origin. Returns an empty text if the origin has just ended.
    pub fn issue(&self, origin: &Principal, purpose: &str) -> String {
        self.issue_text(origin, purpose, None)
    }

    /// The same, but the token also expires.
    pub fn issue_until(&self, origin: &Principal, purpose: &str, expires: Timestamp) -> String {
        self.issue_text(origin, purpose, Some(expires.as_second()))
    }

    /// The holder of the origin, if this home issued the token for this purpose and both are still valid.
    pub fn check(&self, token: &str, purpose: &str) -> Option<Principal> {
        self.find(token, [((), purpose.to_owned())]).map(|((), principal)| principal)
    }

    /// The workspace of the origin that a text names, if that is still valid. This does not check who has issued the text.
    pub fn workspace(&self, token: &str) -> Option<WorkspaceName> {
        let origin = self.tokens.origin(token.split('.').next()?).ok()?;
        Some(origin.principal.workspace)
    }

    /// The first of these purposes that the token was issued for.
    pub fn find<T>(&self, token: &str, purposes: impl IntoIterator<Item = (T, String)>) -> Option<(T, Principal)> {
        let (rest, signature) = token.rsplit_once('.')?;
        let (prefix, expires) = match rest.split_once('.') {
            Some((prefix, seconds)) => (prefix, Some(seconds.parse().ok()?)),
            None => (rest, None),
        };
        let origin = self.tokens.origin(prefix).ok()?;
        let signature = unhex(signature)?;
        let valid = expires.is_none_or(|expires| Timestamp::now().as_second() < expires);
        let fits = |purpose: &str| {
            self.key.macs(&signed_text(&origin, purpose, expires)).any(|mac| mac.verify_slice(&signature).is_ok())
        };
        let (found, _) = purposes.into_iter().find(|(_, purpose)| valid && fits(purpose))?;
        Some((found, origin.principal))
    }

    /// Whether a text looks like a derived token, valid or not.
    pub fn is_one(text: &str) -> bool {
        let mut parts = text.split('.').rev();
        let signed = parts.next().is_some_and(|signature| signature.len() == 64 && unhex(signature).is_some());
        signed && parts.next_back().is_some_and(Tokens::is_prefix)
    }

    /// All tokens for this purpose that work now and come from a token of the workspace that may run code. A client signs
    /// URLs with such a token without naming it.
    pub fn candidates(&self, workspace: &WorkspaceName, purpose: &str) -> Vec<String> {
        self.tokens.runners(workspace).iter().flat_map(|origin| self.texts(origin, purpose, None)).collect()
    }

    fn issue_text(&self, origin: &Principal, purpose: &str, expires: Option<i64>) -> String {
        let origin = self.tokens.origin(&origin.token_prefix);
        origin.ok().and_then(|origin| self.texts(&origin, purpose, expires).next()).unwrap_or_default()
    }

    /// The token as each key signs it, the own one first.
    fn texts(&self, origin: &Origin, purpose: &str, expires: Option<i64>) -> impl Iterator<Item = String> + use<> {
        let prefix = origin.principal.token_prefix.clone();
        self.key.macs(&signed_text(origin, purpose, expires)).map(move |mac| {
            let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let expires = expires.map(|seconds| format!(".{seconds}")).unwrap_or_default();
            format!("{prefix}{expires}.{signature}")
        })
    }
}

/// The origin's hash is part of what is signed: another secret under the same prefix is another origin.
fn signed_text(origin: &Origin, purpose: &str, expires: Option<i64>) -> String {
    let expires = expires.map(|seconds| seconds.to_string()).unwrap_or_default();
    format!("{}:{}:{expires}:{purpose}", origin.principal.token_prefix, origin.hash.to_hex())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    digits.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::{Fixture, workspace};
    use crate::{NewToken, Scope};

    fn derived(fixture: &Fixture) -> DerivedTokens {
        DerivedTokens::new(SigningKey::new([7; 32]), fixture.tokens.clone())
    }

    fn origin(fixture: &Fixture, scope: Scope) -> Principal {
        let created = fixture.tokens.create(&NewToken::new(&WorkspaceName::default(), scope)).unwrap();
        fixture.tokens.authenticate(created.secret.expose()).unwrap()
    }

    #[test]
    fn a_derived_token_names_its_origin_and_works_for_one_purpose() {
        let fixture = Fixture::new();
        let (derived, origin) = (derived(&fixture), origin(&fixture, Scope::Run));
        let token = derived.issue(&origin, "access:1");
        assert!(token.starts_with(&origin.token_prefix));
        assert_eq!(derived.check(&token, "access:1"), Some(origin));
        assert_eq!(derived.check(&token, "access:2"), None);
    }

    #[test]
    fn a_token_of_another_node_works_once_its_key_is_trusted() {
        let fixture = Fixture::new();
        let (theirs, origin) = (derived(&fixture), origin(&fixture, Scope::Run));
        let ours = DerivedTokens::new(SigningKey::new([8; 32]), fixture.tokens.clone());
        let token = theirs.issue(&origin, "access:1");
        assert_eq!(ours.check(&token, "access:1"), None);
        ours.key.trust([7; 32]);
        assert_eq!(ours.check(&token, "access:1").as_ref(), Some(&origin));
        assert_eq!(ours.check(&token, "access:2"), None);
        assert!(ours.candidates(&WorkspaceName::default(), "access:1").contains(&token));
        assert_ne!(ours.issue(&origin, "access:1"), token, "it signs with its own");
    }

    #[test]
    fn a_derived_token_ends_with_its_origin() {
        let fixture = Fixture::new();
        let (derived, origin) = (derived(&fixture), origin(&fixture, Scope::Run));
        let (token, ticket) =
            (derived.issue(&origin, "a"), derived.issue_until(&origin, "b", Timestamp::now() + Duration::from_secs(9)));
        assert!(derived.check(&token, "a").is_some() && derived.check(&ticket, "b").is_some());
        fixture.another_process().tokens.revoke(&WorkspaceName::default(), &origin.token_prefix).unwrap();
        assert!(derived.check(&token, "a").is_none() && derived.check(&ticket, "b").is_none());
        assert_eq!(derived.issue(&origin, "a"), "");
    }

    #[test]
    fn a_ticket_expires_and_its_expiry_cannot_be_changed() {
        let fixture = Fixture::new();
        let (derived, origin) = (derived(&fixture), origin(&fixture, Scope::Run));
        let past = Timestamp::now();
        let ticket = derived.issue_until(&origin, "a", past);
        assert!(derived.check(&ticket, "a").is_none());
        let later = ticket.replace(&past.as_second().to_string(), &(past.as_second() + 60).to_string());
        let forever = ticket.replace(&format!(".{}", past.as_second()), "");
        for forged in [later.as_str(), &forever, "", ".", "..", "sdl_00000000.zz", "environment.00"] {
            assert!(derived.check(forged, "a").is_none(), "{forged}");
        }
    }

    #[test]
    fn another_environment_token_is_another_origin() {
        let fixture = Fixture::new().with_environment_token("one");
        let origin = fixture.tokens.authenticate("one").unwrap();
        let token = derived(&fixture).issue(&origin, "a");
        assert!(derived(&fixture).check(&token, "a").is_some());
        assert!(derived(&fixture.with_environment_token("two")).check(&token, "a").is_none());
    }

    #[test]
    fn candidates_come_from_tokens_of_the_workspace_that_may_run_code() {
        let fixture = Fixture::new();
        let (derived, runner) = (derived(&fixture), origin(&fixture, Scope::Run));
        let reader = origin(&fixture, Scope::Read);
        let candidates = derived.candidates(&WorkspaceName::default(), "a");
        assert!(candidates.contains(&derived.issue(&runner, "a")));
        assert!(!candidates.contains(&derived.issue(&reader, "a")));
        fixture.workspaces.create(&workspace("other")).unwrap();
        assert!(derived.candidates(&workspace("other"), "a").is_empty());
    }
}
