//! Tokens and workspaces that several homes share. Each home has a copy of all of them, and what has ended in one home ends in
//! the others. So copies can be merged in any order.

use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use crate::tokens::{TokenInfo, TokenRow, Tokens};
use crate::workspaces::{WorkspaceName, Workspaces};

/// For how long a token that has expired is shared. Homes forget it at about that time.
const SHARED_FOR: Duration = Duration::from_secs(90 * 24 * 3600);

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedToken {
    pub info: TokenInfo,
    hash: String,
    revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedWorkspace {
    pub name: WorkspaceName,
    pub deleted_at: Option<Timestamp>,
}

impl SharedToken {
    fn of(row: TokenRow) -> Self {
        let info = TokenInfo { last_used_at: None, ..row.info };
        Self { info, hash: row.hash.to_hex().to_string(), revoked_at: row.revoked_at }
    }

    /// Whether another copy of the same token does not know yet what this one does.
    pub fn is_news_to(&self, copy: &Self) -> bool {
        let ended = |token: &Self| token.revoked_at.unwrap_or(Timestamp::MAX);
        self.hash == copy.hash && ended(self) < ended(copy)
    }

    /// Whether the token has expired so long ago that homes forget it. A revoked one is kept until then: a home that was
    /// off, or a restored backup, may still know it as valid.
    pub fn is_forgotten(&self) -> bool {
        self.info.expires_at.is_some_and(|at| at < Timestamp::now() - SHARED_FOR)
    }
}

impl Tokens {
    /// All tokens, also those that have ended.
    pub fn shared(&self) -> Result<Vec<SharedToken>, StoreError> {
        Ok(self.store.all_tokens()?.into_iter().map(SharedToken::of).filter(|token| !token.is_forgotten()).collect())
    }

    /// Merges a token of another home. Returns whether it works no longer here because of that.
    pub fn adopt(&self, token: &SharedToken) -> Result<bool, StoreError> {
        let Ok(hash) = blake3::Hash::from_hex(&token.hash) else { return Ok(false) };
        self.store.merge_token(&TokenRow { info: token.info.clone(), hash, revoked_at: token.revoked_at })
    }
}

impl Workspaces {
    /// All workspaces but the default one, also those that are deleted.
    pub fn shared(&self) -> Result<Vec<SharedWorkspace>, StoreError> {
        let all = self.store.all_workspaces()?.into_iter().filter(|(name, _)| !name.is_default());
        Ok(all.map(|(name, deleted_at)| SharedWorkspace { name, deleted_at }).collect())
    }

    /// Adds a workspace of another home, unless there is, or ever was, one of this name.
    pub fn adopt(&self, name: &WorkspaceName) -> Result<bool, StoreError> {
        self.store.insert_workspace(name, Timestamp::now())
    }

    /// Takes the name of a workspace that another home has deleted, unless there is, or ever was, one of this name.
    pub fn adopt_deleted(&self, name: &WorkspaceName, deleted_at: Timestamp) -> Result<(), StoreError> {
        self.store.insert_deleted_workspace(name, deleted_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, workspace};
    use crate::{AuthError, NewToken, Scope, WorkspaceError};

    fn copy(from: &Fixture, to: &Fixture) {
        for token in from.tokens.shared().unwrap() {
            let text = serde_json::to_string(&token).unwrap();
            to.tokens.adopt(&serde_json::from_str(&text).unwrap()).unwrap();
        }
    }

    fn of<'a>(tokens: &'a [SharedToken], prefix: &str) -> &'a SharedToken {
        tokens.iter().find(|token| token.info.prefix == prefix).unwrap()
    }

    #[test]
    fn a_token_works_in_every_home_that_has_a_copy_until_one_revokes_it() {
        let (one, other) = (Fixture::new(), Fixture::new());
        let team = workspace("team");
        one.workspaces.create(&team).unwrap();
        let token = one.tokens.create(&NewToken::new(&team, Scope::Run)).unwrap();
        copy(&one, &other);
        let works = |home: &Fixture| home.tokens.authenticate(token.secret.expose());
        assert!(matches!(works(&other), Err(AuthError::Unknown)), "its workspace is missing");
        assert!(other.workspaces.adopt(&team).unwrap());
        copy(&one, &other);
        assert_eq!(works(&other).unwrap(), works(&one).unwrap());
        other.tokens.revoke(&team, &token.info.prefix).unwrap();
        let (old, new) = (one.tokens.shared().unwrap(), other.tokens.shared().unwrap());
        let (old, new) = (of(&old, &token.info.prefix), of(&new, &token.info.prefix));
        assert!(new.is_news_to(old) && !old.is_news_to(new));
        assert!(one.tokens.adopt(new).unwrap());
        assert!(matches!(works(&one), Err(AuthError::Revoked)));
        assert!(!one.tokens.adopt(old).unwrap(), "nothing revives it");
        assert!(matches!(works(&one), Err(AuthError::Revoked)));
    }

    #[test]
    fn homes_that_revoke_a_token_at_different_times_agree_on_the_first() {
        let (one, other) = (Fixture::new(), Fixture::new());
        let default = WorkspaceName::default();
        let token = one.tokens.create(&NewToken::new(&default, Scope::Run)).unwrap();
        copy(&one, &other);
        one.tokens.revoke(&default, &token.info.prefix).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        other.tokens.revoke(&default, &token.info.prefix).unwrap();
        copy(&other, &one);
        copy(&one, &other);
        let (ours, theirs) = (one.tokens.shared().unwrap(), other.tokens.shared().unwrap());
        assert_eq!(of(&ours, &token.info.prefix), of(&theirs, &token.info.prefix));
    }

    #[test]
    fn a_revoked_token_is_shared_until_it_would_have_expired() {
        let home = Fixture::new();
        let token = home.tokens.create(&NewToken::new(&WorkspaceName::default(), Scope::Run)).unwrap();
        let all = home.tokens.shared().unwrap();
        let long_ago = Timestamp::now() - SHARED_FOR - Duration::from_secs(1);
        let revoked = SharedToken { revoked_at: Some(long_ago), ..of(&all, &token.info.prefix).clone() };
        assert!(home.tokens.adopt(&revoked).unwrap());
        home.tokens.create(&NewToken::new(&WorkspaceName::default(), Scope::Run)).unwrap();
        let all = home.tokens.shared().unwrap();
        assert!(revoked.is_news_to(&SharedToken { revoked_at: None, ..revoked.clone() }));
        assert_eq!(of(&all, &token.info.prefix).revoked_at.map(Timestamp::as_second), Some(long_ago.as_second()));
        let expired = TokenInfo { expires_at: Some(long_ago), ..revoked.info.clone() };
        assert!(!revoked.is_forgotten() && SharedToken { info: expired, ..revoked }.is_forgotten());
    }

    #[test]
    fn the_name_of_a_workspace_that_another_home_has_deleted_is_taken() {
        let home = Fixture::new();
        let (team, mine) = (workspace("team"), workspace("mine"));
        home.workspaces.create(&mine).unwrap();
        for name in [&team, &mine] {
            home.workspaces.adopt_deleted(name, Timestamp::now()).unwrap();
        }
        assert!(matches!(home.workspaces.create(&team), Err(WorkspaceError::NameTaken(_))));
        assert!(!home.workspaces.adopt(&team).unwrap());
        assert!(home.workspaces.find(&mine).is_ok(), "the one that is here stays");
    }

    #[test]
    fn a_copy_cannot_replace_another_token_of_the_same_prefix() {
        let home = Fixture::new();
        let default = WorkspaceName::default();
        let token = home.tokens.create(&NewToken::new(&default, Scope::Run)).unwrap();
        let all = home.tokens.shared().unwrap();
        let own = of(&all, &token.info.prefix);
        let hash = blake3::hash(b"another").to_hex().to_string();
        let other = SharedToken { hash, revoked_at: Some(Timestamp::now()), ..own.clone() };
        assert!(!other.is_news_to(own) && !home.tokens.adopt(&other).unwrap());
        assert!(home.tokens.authenticate(token.secret.expose()).is_ok());
    }
}
