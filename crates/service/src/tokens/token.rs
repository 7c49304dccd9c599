//! Tokens: made, listed, revoked. Who may do so is decided by [`super::Principal`] beforehand.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use super::scope::Scope;
use super::secret::TokenSecret;
use crate::access::Access;
use crate::workspaces::WorkspaceName;

const LONGEST_NAME: usize = 64;
/// More than anyone needs, and an end to a script that makes tokens for ever.
const TOKENS_PER_WORKSPACE: u32 = 1000;
/// How long "it has expired" and "it was revoked" can be told from "there is no such token".
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3600);
/// A prefix has 32 random bits; more than two collisions in a row mean that something else is wrong.
const ATTEMPTS: u32 = 8;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub workspace: WorkspaceName,
    /// For people; at most 64 characters, none of them a control character.
    pub name: String,
    pub scope: Scope,
    pub expires_at: Option<Timestamp>,
}

impl NewToken {
    /// Without a name, and for ever.
    pub fn new(workspace: &WorkspaceName, scope: Scope) -> Self {
        Self { workspace: workspace.clone(), name: String::new(), scope, expires_at: None }
    }
}

/// What can be told about a token.
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

impl Access {
    /// Makes a token. The answer is the only place where its secret stands.
    pub fn create_token(&self, new: &NewToken) -> Result<CreatedToken, TokenError> {
        let now = Timestamp::now();
        self.store.forget_tokens(now - REMEMBERED)?;
        for _ in 0..ATTEMPTS {
            self.check_new_token(new, now)?;
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
                // As it was written, i.e. to the millisecond.
                let info = self.token(&new.workspace, secret.prefix())?;
                return Ok(CreatedToken { secret, info });
            }
        }
        Err(TokenError::NoFreePrefix)
    }

    fn check_new_token(&self, new: &NewToken, now: Timestamp) -> Result<(), TokenError> {
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
    pub fn tokens(&self, workspace: &WorkspaceName) -> Result<Vec<TokenInfo>, StoreError> {
        self.store.tokens_of(workspace)
    }

    pub fn token(&self, workspace: &WorkspaceName, prefix: &str) -> Result<TokenInfo, TokenError> {
        let row = self.store.token(prefix)?.filter(|row| row.info.workspace == *workspace && row.revoked_at.is_none());
        row.map(|row| row.info).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))
    }

    /// From the moment this returns, the token is refused, by every process of this home. Another workspace's token
    /// is not found.
    pub fn revoke_token(&self, workspace: &WorkspaceName, prefix: &str) -> Result<(), TokenError> {
        let found = self.store.revoke_token(workspace, prefix, Timestamp::now())?;
        found.then_some(()).ok_or_else(|| TokenError::NotFound(prefix.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuthError;
    use crate::access::tests::{Fixture, workspace};

    #[test]
    fn the_store_has_no_secret_in_it() {
        let fixture = Fixture::new();
        let token = fixture.access.create_token(&NewToken::new(&WorkspaceName::default(), Scope::Run)).unwrap();
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
    fn another_workspaces_token_is_neither_seen_nor_revoked() {
        let fixture = Fixture::new();
        let (a, b) = (workspace("team-a"), workspace("team-b"));
        fixture.access.create_workspace(&a).unwrap();
        fixture.access.create_workspace(&b).unwrap();
        let token = fixture.access.create_token(&NewToken::new(&a, Scope::Admin)).unwrap();
        assert!(fixture.access.tokens(&b).unwrap().is_empty());
        assert!(matches!(fixture.access.token(&b, &token.info.prefix), Err(TokenError::NotFound(_))));
        assert!(matches!(fixture.access.revoke_token(&b, &token.info.prefix), Err(TokenError::NotFound(_))));
        assert_eq!(fixture.access.tokens(&a).unwrap(), [token.info]);
        assert_eq!(fixture.access.authenticate(token.secret.expose()).unwrap().workspace, a);
    }

    #[test]
    fn a_revoked_token_is_listed_no_more_and_cannot_be_revoked_again() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let token = fixture.access.create_token(&NewToken::new(&default, Scope::Run)).unwrap();
        fixture.access.revoke_token(&default, &token.info.prefix).unwrap();
        assert!(!fixture.access.tokens(&default).unwrap().contains(&token.info));
        assert!(matches!(fixture.access.revoke_token(&default, &token.info.prefix), Err(TokenError::NotFound(_))));
    }

    #[test]
    fn bad_wishes_are_refused() {
        let fixture = Fixture::new();
        let good = NewToken::new(&WorkspaceName::default(), Scope::Run);
        let make = |new: NewToken| fixture.access.create_token(&new);
        assert!(matches!(make(NewToken { name: "x".repeat(65), ..good.clone() }), Err(TokenError::BadName)));
        assert!(matches!(make(NewToken { name: "a\nb".to_owned(), ..good.clone() }), Err(TokenError::BadName)));
        assert!(make(NewToken { name: "ü".repeat(64), ..good.clone() }).is_ok());
        let past = Some(Timestamp::now());
        assert!(matches!(make(NewToken { expires_at: past, ..good.clone() }), Err(TokenError::AlreadyExpired)));
        let nowhere = NewToken { workspace: workspace("nowhere"), ..good };
        assert!(matches!(make(nowhere), Err(TokenError::NoWorkspace(_))));
    }

    #[test]
    fn a_workspace_has_so_many_tokens_and_no_more() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let new = NewToken::new(&default, Scope::Run);
        let first = fixture.access.create_token(&new).unwrap();
        // The first start made one, this test another.
        for number in 2..TOKENS_PER_WORKSPACE {
            let info = TokenInfo { prefix: format!("sdl_{number:08}"), ..first.info.clone() };
            assert!(fixture.access.store.insert_token(&info, &first.secret.hash()).unwrap());
        }
        assert!(matches!(fixture.access.create_token(&new), Err(TokenError::TooMany)));
        fixture.access.revoke_token(&default, &first.info.prefix).unwrap();
        assert!(fixture.access.create_token(&new).is_ok());
    }

    #[test]
    fn a_damaged_row_opens_no_door_and_hides_only_itself() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let [damaged, good] = [Scope::Read, Scope::Run]
            .map(|scope| fixture.access.create_token(&NewToken::new(&default, scope)).unwrap());
        let connection = rusqlite::Connection::open(fixture.home.store()).unwrap();
        let sql = "UPDATE tokens SET scope = 'everything' WHERE prefix = ?1";
        assert_eq!(connection.execute(sql, [&damaged.info.prefix]).unwrap(), 1);
        assert!(matches!(fixture.access.authenticate(damaged.secret.expose()), Err(AuthError::Unknown)));
        assert!(fixture.access.authenticate(good.secret.expose()).is_ok());
        let listed: Vec<_> = fixture.access.tokens(&default).unwrap().into_iter().map(|token| token.prefix).collect();
        assert!(listed.contains(&good.info.prefix) && !listed.contains(&damaged.info.prefix));
    }

    #[test]
    fn tokens_that_stopped_working_long_ago_are_forgotten_and_others_are_not() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let soon = Timestamp::now() + Duration::from_secs(60);
        let make = |expires_at| {
            fixture.access.create_token(&NewToken { expires_at, ..NewToken::new(&default, Scope::Run) }).unwrap().info
        };
        let (expiring, revoked, good) = (make(Some(soon)), make(None), make(None));
        fixture.access.revoke_token(&default, &revoked.prefix).unwrap();
        let there = |info: &TokenInfo| fixture.access.store.token(&info.prefix).unwrap().is_some();
        fixture.access.store.forget_tokens(Timestamp::now() - Duration::from_secs(5)).unwrap();
        assert!(there(&expiring) && there(&revoked) && there(&good));
        fixture.access.store.forget_tokens(soon + Duration::from_secs(1)).unwrap();
        assert!(!there(&expiring) && !there(&revoked) && there(&good));
    }
}
