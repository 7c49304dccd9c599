//! Issuing, checking and revoking preview tokens.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::store::StoreError;

use super::key::{PreviewToken, SigningKey};
use super::secret::{self, NodeKeyError};
use crate::store::Store;
use crate::tokens::Tokens;
use crate::workspaces::WorkspaceName;

/// How many valid tokens a workspace may have.
const MOST: u32 = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("max preview tokens reached: the limit is {MOST}; revoke some, or let them expire")]
    TooMany,
    #[error("there is no such preview token")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The preview tokens of all workspaces of a home.
pub struct Previews {
    key: SigningKey,
    directory: PathBuf,
    store: Arc<Store>,
    tokens: Tokens,
}

impl Previews {
    /// `directory` holds the secret that signs tokens.
    pub(crate) fn open(directory: &Path, store: Arc<Store>, tokens: Tokens) -> io::Result<Self> {
        let key = SigningKey::new(secret::read_or_make(directory)?);
        secret::read_other_nodes(directory)?.into_iter().for_each(|secret| key.trust(secret));
        Ok(Self { key, directory: directory.to_owned(), store, tokens })
    }

    /// The secrets whose tokens this home accepts, its own among them, in hexadecimal digits.
    pub(crate) fn secrets(&self) -> Result<Vec<String>, NodeKeyError> {
        let own = secret::read_or_make(&self.directory)?;
        let all = std::iter::once(own).chain(secret::read_other_nodes(&self.directory)?);
        Ok(all.map(|secret| blake3::Hash::from_bytes(secret).to_hex().to_string()).collect())
    }

    /// Accepts tokens that another node of the fleet has signed, from now on.
    pub(crate) fn trust(&self, secret: &str) -> Result<(), NodeKeyError> {
        let other = blake3::Hash::from_hex(secret).map_err(|_| NodeKeyError::Malformed)?;
        if secret::add_other_node(&self.directory, other.as_bytes())? {
            self.key.trust(*other.as_bytes());
        }
        Ok(())
    }

    pub(crate) fn key(&self) -> SigningKey {
        self.key.clone()
    }

    /// Issues a token, which is valid until it expires or is revoked. Returns its signed text.
    pub fn issue(&self, workspace: &WorkspaceName, token: &PreviewToken) -> Result<String, PreviewError> {
        let expires = Timestamp::from_second(token.expires_unix).unwrap_or(Timestamp::MAX);
        let issued = self.store.insert_preview(workspace, &token.id, expires, MOST)?;
        if issued { Ok(self.key.sign(token)) } else { Err(PreviewError::TooMany) }
    }

    /// What a token allows, if this home issued it, and it and its origin are still valid.
    pub fn check(&self, signed: &str) -> Option<PreviewToken> {
        let token = self.key.check(signed, Timestamp::now())?;
        self.is_valid(&token).then_some(token)
    }

    /// Whether a token of this home still works.
    pub fn is_valid(&self, token: &PreviewToken) -> bool {
        let expired = Timestamp::now().as_second() >= token.expires_unix;
        if expired || !(token.origin.is_empty() || self.tokens.is_valid(&token.origin)) {
            return false;
        }
        match self.store.has_preview(&token.workspace, &token.id) {
            Ok(valid) => valid,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "refusing a preview token: cannot check whether it was revoked"
                );
                false
            }
        }
    }

    /// Revokes a token, given its id or its signed text. Once this returns, every process of this home refuses it.
    pub fn revoke(&self, workspace: &WorkspaceName, token: &str) -> Result<(), PreviewError> {
        let revoked = self.store.remove_preview(workspace, &self.id(token))?;
        revoked.then_some(()).ok_or(PreviewError::Unknown)
    }

    /// The id of a token that this home issued and that is still valid, given its id or its signed text.
    pub fn find(&self, workspace: &WorkspaceName, token: &str) -> Result<Option<String>, PreviewError> {
        let id = self.id(token);
        Ok(self.store.has_preview(workspace.as_str(), &id)?.then_some(id))
    }

    fn id(&self, token: &str) -> String {
        self.key.check(token, Timestamp::now()).map_or_else(|| token.to_owned(), |signed| signed.id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::{Fixture, workspace};
    use crate::{NewToken, Scope};

    fn previews(fixture: &Fixture) -> Previews {
        Previews::open(&fixture.home.root().join("previews"), fixture.store.clone(), fixture.tokens.clone()).unwrap()
    }

    fn token(workspace: &WorkspaceName, id: &str) -> PreviewToken {
        PreviewToken {
            id: id.to_owned(),
            origin: String::new(),
            workspace: workspace.to_string(),
            sandbox: "s".to_owned(),
            port: 80,
            paths: vec![],
            expires_unix: (Timestamp::now() + Duration::from_secs(3600)).as_second(),
        }
    }

    #[test]
    fn a_token_and_its_revocation_outlive_the_server() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let token = token(&default, "0123456789abcdef");
        let signed = previews(&fixture).issue(&default, &token).unwrap();
        let fixture = fixture.restart();
        let second = previews(&fixture);
        assert_eq!(second.check(&signed), Some(token.clone()));
        for known in [&signed, &token.id] {
            assert_eq!(second.find(&default, known).unwrap().as_ref(), Some(&token.id));
        }
        second.revoke(&default, &signed).unwrap();
        assert_eq!(previews(&fixture.another_process()).check(&signed), None);
        assert!(matches!(second.revoke(&default, &signed), Err(PreviewError::Unknown)));
        assert_eq!(second.find(&default, &signed).unwrap(), None);
    }

    #[test]
    fn a_preview_token_ends_with_the_token_it_was_made_with() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let origin = fixture.tokens.create(&NewToken::new(&default, Scope::Run)).unwrap().info.prefix;
        let previews = previews(&fixture);
        let signed =
            previews.issue(&default, &PreviewToken { origin: origin.clone(), ..token(&default, "aa") }).unwrap();
        assert!(previews.check(&signed).is_some());
        fixture.tokens.revoke(&default, &origin).unwrap();
        assert!(previews.check(&signed).is_none());
    }

    #[test]
    fn another_workspace_cannot_revoke_a_token() {
        let fixture = Fixture::new();
        let (default, other) = (WorkspaceName::default(), workspace("other"));
        fixture.workspaces.create(&other).unwrap();
        let previews = previews(&fixture);
        let signed = previews.issue(&default, &token(&default, "aa")).unwrap();
        assert!(matches!(previews.revoke(&other, "aa"), Err(PreviewError::Unknown)));
        assert!(previews.check(&signed).is_some());
        previews.revoke(&default, "aa").unwrap();
        assert!(previews.check(&signed).is_none());
    }

    #[test]
    fn expired_tokens_do_not_count_against_the_limit() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let (past, later) = (Timestamp::now(), Timestamp::now() + Duration::from_secs(60));
        assert!(fixture.store.insert_preview(&default, "aa", past, 1).unwrap());
        assert!(fixture.store.insert_preview(&default, "bb", later, 1).unwrap());
        assert!(!fixture.store.insert_preview(&default, "cc", later, 1).unwrap());
        let valid = |id| fixture.store.has_preview("default", id).unwrap();
        assert!(!valid("aa") && valid("bb") && !valid("cc"));
    }

    #[test]
    fn deleting_a_workspace_revokes_its_tokens() {
        let fixture = Fixture::new();
        let team = workspace("team");
        fixture.workspaces.create(&team).unwrap();
        let previews = previews(&fixture);
        let signed = previews.issue(&team, &token(&team, "aa")).unwrap();
        fixture.admission.delete_workspace(&team, || 0).unwrap();
        assert!(previews.check(&signed).is_none());
    }
}
