//! Making, listing and revoking tokens. The caller checks beforehand, with [`super::Principal`], who may do that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use super::scope::Scope;
use super::secret::{TokenSecret, hash};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

const LONGEST_NAME: usize = 64;
/// Stops a script that makes tokens in an endless loop.
const TOKENS_PER_WORKSPACE: u32 = 1000;
/// For how long an expired token is told apart from an unknown one.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3600);
/// A prefix has 32 random bits, so several collisions in a row mean that something else is wrong.
const ATTEMPTS: u32 = 8;

#[derive(Debug, Clone)]
pub struct NewToken {
    pub workspace: WorkspaceName,
    /// For people; at most 64 characters, none of them a control character.
    pub name: String,
    pub scope: Scope,
    pub expires_at: Option<Timestamp>,
}

impl NewToken {
    /// A token without a name that never expires.
    pub fn new(workspace: &WorkspaceName, scope: Scope) -> Self {
        Self { workspace: workspace.clone(), name: String::new(), scope, expires_at: None }
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    pub prefix: String,
    pub name: String,
    pub workspace: WorkspaceName,
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Exact to a minute.
    pub last_used_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct CreatedToken {
    pub secret: TokenSecret,
    pub info: TokenInfo,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("a token's name has at most {LONGEST_NAME} characters, none of them a control character")]
    BadName,
    #[error("the token would have expired already")]
    AlreadyExpired,
    #[error("there is no workspace {0}")]
    NoWorkspace(WorkspaceName),
    #[error("the workspace has {TOKENS_PER_WORKSPACE} tokens; revoke some first")]
    TooMany,
    #[error("there is no token {0}")]
    NotFound(String),
    #[error("the kernel gives no random numbers")]
    Randomness(#[source] io::Error),
    #[error("no free prefix was found for the token")]
    NoFreePrefix,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The tokens of all workspaces, and the identities that they prove. Clones are cheap.
#[derive(Clone)]
pub struct Tokens {
    pub(crate) store: Arc<Store>,
    /// The hash of a token that the server's environment names. It is accepted as an operator's and never stored.
    pub(super) environment_token: Option<blake3::Hash>,
}

impl Tokens {
    /// An empty environment token counts as none.
    pub(crate) fn new(store: Arc<Store>, environment_token: Option<String>) -> Self {
        let environment_token = environment_token.filter(|token| !token.is_empty()).map(|token| hash(&token));
        Self { store, environment_token }
    }

    /// Makes a token. Its secret is in the answer and nowhere else.
    pub fn create(&self, new: &NewToken) -> Result<CreatedToken, TokenError> {
        let now = Timestamp::now();
        self.store.forget_tokens(now - REMEMBERED)?;
        for _ in 0..ATTEMPTS {
            self.check_new(new, now)?;
            let secret = TokenSecret::fresh().map_err(TokenError::Randomness)?;
            let info = TokenInfo {
                prefix: secret.prefix().to_owned(),
                name: new.name.clone(),
                workspace: new.workspace.clone(),
                scope: new.scope,
                created_at: now,
                expires_at: new.expires_at,
                last_used_at: None,
            };
            if self.store.insert_token(&info, &secret.hash())? {
                // As stored: times are exact to the millisecond.
                let info = self.find(&new.workspace, secret.prefix())?;
                return Ok(CreatedToken { secret, info });
            }
        }
        Err(TokenError::NoFreePrefix)
    }

    fn check_new(&self, new: &NewToken, now: Timestamp) -> Result<(), TokenError> {
        if new.name.chars().count() > LONGEST_NAME || new.name.chars().any(char::is_control) {
            return Err(TokenError::BadName);
        }
        if new.expires_at.is_some_and(|at| at <= now) {
            return Err(TokenError::AlreadyExpired);
        }
        if self.store.workspace(&new.workspace)?.is_none() {
            return Err(TokenError::NoWorkspace(new.workspace.clone()));
        }
        if self.store.count_tokens(&new.workspace)? >= TOKENS_PER_WORKSPACE {
            return Err(TokenError::TooMany);
        }
        Ok(())
    }

    /// The tokens of a workspace that were not revoked, oldest first.
    pub fn list(&self, workspace: &WorkspaceName) -> Result<Vec<TokenInfo>, StoreError> {
        self.store.tokens_of(workspace)
    }

    pub fn find(&self, workspace: &WorkspaceName, prefix: &str) -> Result<TokenInfo, TokenError> {
        let row = self.store.token(prefix)?.filter(|row| row.info.workspace == *workspace && row.revoked_at.is_none());
        row.map(|row| row.info).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))
    }

    /// Revokes a token of this workspace. Once this returns, every process of this home refuses it.
    pub fn revoke(&self, workspace: &WorkspaceName, prefix: &str) -> Result<(), TokenError> {
        let found = self.store.revoke_token(workspace, prefix, Timestamp::now())?;
        found.then_some(()).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuthError;
    use crate::fixture::{Fixture, workspace};

    #[test]
    fn secrets_are_not_stored() {
        let fixture = Fixture::new();
        let token = fixture.tokens.create(&NewToken::new(&WorkspaceName::default(), Scope::Run)).unwrap();
        let (prefix, hidden) = token.secret.expose().split_at(12);
        // The newest rows stand in the write-ahead log.
        let files =
            ["sandling.db", "sandling.db-wal"].map(|name| std::fs::read(fixture.home.root().join(name)).unwrap());
        let holds =
            |text: &str| files.iter().any(|file| file.windows(text.len()).any(|window| window == text.as_bytes()));
        assert!(holds(prefix));
        assert!(!holds(hidden));
    }

    #[test]
    fn the_token_of_another_workspace_can_be_neither_seen_nor_revoked() {
        let fixture = Fixture::new();
        let (a, b) = (workspace("team-a"), workspace("team-b"));
        fixture.workspaces.create(&a).unwrap();
        fixture.workspaces.create(&b).unwrap();
        let token = fixture.tokens.create(&NewToken::new(&a, Scope::Admin)).unwrap();
        assert!(fixture.tokens.list(&b).unwrap().is_empty());
        assert!(matches!(fixture.tokens.find(&b, &token.info.prefix), Err(TokenError::NotFound(_))));
        assert!(matches!(fixture.tokens.revoke(&b, &token.info.prefix), Err(TokenError::NotFound(_))));
        assert_eq!(fixture.tokens.list(&a).unwrap(), [token.info]);
        assert_eq!(fixture.tokens.authenticate(token.secret.expose()).unwrap().workspace, a);
    }

    #[test]
    fn a_revoked_token_is_not_listed_and_cannot_be_revoked_again() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let token = fixture.tokens.create(&NewToken::new(&default, Scope::Run)).unwrap();
        fixture.tokens.revoke(&default, &token.info.prefix).unwrap();
        assert!(!fixture.tokens.list(&default).unwrap().contains(&token.info));
        assert!(matches!(fixture.tokens.revoke(&default, &token.info.prefix), Err(TokenError::NotFound(_))));
    }

    #[test]
    fn invalid_requests_are_refused() {
        let fixture = Fixture::new();
        let good = NewToken::new(&WorkspaceName::default(), Scope::Run);
        let make = |new: NewToken| fixture.tokens.create(&new);
        assert!(matches!(make(NewToken { name: "x".repeat(65), ..good.clone() }), Err(TokenError::BadName)));
        assert!(matches!(make(NewToken { name: "a\nb".to_owned(), ..good.clone() }), Err(TokenError::BadName)));
        assert!(make(NewToken { name: "ü".repeat(64), ..good.clone() }).is_ok());
        let past = Some(Timestamp::now());
        assert!(matches!(make(NewToken { expires_at: past, ..good.clone() }), Err(TokenError::AlreadyExpired)));
        let nowhere = NewToken { workspace: workspace("nowhere"), ..good };
        assert!(matches!(make(nowhere), Err(TokenError::NoWorkspace(_))));
    }

    #[test]
    fn the_number_of_tokens_is_limited() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let new = NewToken::new(&default, Scope::Run);
        let first = fixture.tokens.create(&new).unwrap();
        // The first start has made one token, and this test another.
        for number in 2..TOKENS_PER_WORKSPACE {
            let info = TokenInfo { prefix: format!("sdl_{number:08}"), ..first.info.clone() };
            assert!(fixture.store.insert_token(&info, &first.secret.hash()).unwrap());
        }
        assert!(matches!(fixture.tokens.create(&new), Err(TokenError::TooMany)));
        fixture.tokens.revoke(&default, &first.info.prefix).unwrap();
        assert!(fixture.tokens.create(&new).is_ok());
    }

    #[test]
    fn a_damaged_row_is_refused_and_hides_no_other_row() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let [damaged, good] =
            [Scope::Read, Scope::Run].map(|scope| fixture.tokens.create(&NewToken::new(&default, scope)).unwrap());
        let connection = rusqlite::Connection::open(fixture.home.store()).unwrap();
        let sql = "UPDATE tokens SET scope = 'everything' WHERE prefix = ?1";
        assert_eq!(connection.execute(sql, [&damaged.info.prefix]).unwrap(), 1);
        assert!(matches!(fixture.tokens.authenticate(damaged.secret.expose()), Err(AuthError::Unknown)));
        assert!(fixture.tokens.authenticate(good.secret.expose()).is_ok());
        let listed: Vec<_> = fixture.tokens.list(&default).unwrap().into_iter().map(|token| token.prefix).collect();
        assert!(listed.contains(&good.info.prefix) && !listed.contains(&damaged.info.prefix));
    }

    #[test]
    fn only_tokens_that_expired_long_ago_are_deleted() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let soon = Timestamp::now() + Duration::from_secs(60);
        let make = |expires_at| {
            fixture.tokens.create(&NewToken { expires_at, ..NewToken::new(&default, Scope::Run) }).unwrap().info
        };
        let (expiring, revoked, good) = (make(Some(soon)), make(None), make(None));
        fixture.tokens.revoke(&default, &revoked.prefix).unwrap();
        let there = |info: &TokenInfo| fixture.store.token(&info.prefix).unwrap().is_some();
        fixture.store.forget_tokens(Timestamp::now() - Duration::from_secs(5)).unwrap();
        assert!(there(&expiring) && there(&revoked) && there(&good));
        fixture.store.forget_tokens(soon + Duration::from_secs(1)).unwrap();
        assert!(!there(&expiring) && there(&revoked) && there(&good));
    }
}
