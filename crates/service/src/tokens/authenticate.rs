//! Finds the principal that a token belongs to.
//!
//! Every request looks the token up in the database, so that a token that one process revokes is refused by all at once.
//! A cache would have to ask the database whether it is still valid, which takes as long as the lookup.

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use sandling_wire::{TOKEN_VARIABLE, native_token};

use super::rows::TokenRow;
use super::scope::{Principal, Scope};
use super::secret::{TokenSecret, hash};
use super::token::{TokenInfo, Tokens};
use crate::workspaces::WorkspaceName;

/// The prefix of the token that the server's environment names.
const ENVIRONMENT: &str = "environment";
/// A token's last use is written at most this often.
const TOUCH_EVERY_MS: i64 = 60_000;

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("a token is needed")]
    Missing,
    #[error("this is not a token")]
    Malformed,
    #[error("there is no such token")]
    Unknown,
    #[error("the token has expired")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tokens {
    /// The holder of a token. `presented` is the bare token in any of its forms, without `Bearer`; an empty one counts as
    /// missing.
    pub fn authenticate(&self, presented: &str) -> Result<Principal, AuthError> {
        let now = Timestamp::now();
        match (self.authenticate_at(presented, now), native_token(presented)) {
            (Err(AuthError::Malformed), Some(token)) => self.authenticate_at(&token, now),
            (result, _) => result,
        }
    }

    fn authenticate_at(&self, presented: &str, now: Timestamp) -> Result<Principal, AuthError> {
        if presented.is_empty() {
            return Err(AuthError::Missing);
        }
        if self.environment_token.is_some_and(|expected| expected == hash(presented)) {
            return Ok(environment_principal());
        }
        let secret = TokenSecret::parse(presented).ok_or(AuthError::Malformed)?;
        let row = self.store.token(secret.prefix())?.filter(|row| row.hash == secret.hash());
        let row = row.ok_or(AuthError::Unknown)?;
        check_validity(&row, now)?;
        self.touch(&row, now);
        Ok(principal(row.info))
    }

    /// The valid token with this prefix, which other credentials were derived from.
    pub(crate) fn origin(&self, prefix: &str) -> Result<Origin, AuthError> {
        if prefix == ENVIRONMENT {
            let hash = self.environment_token.ok_or(AuthError::Unknown)?;
            return Ok(Origin { principal: environment_principal(), hash });
        }
        let row = self.store.token(prefix)?.ok_or(AuthError::Unknown)?;
        check_validity(&row, Timestamp::now())?;
        Ok(Origin { hash: row.hash, principal: principal(row.info) })
    }

    /// Whether a text has the form of a token's prefix.
    pub(crate) fn is_prefix(text: &str) -> bool {
        text == ENVIRONMENT || TokenSecret::is_prefix(text)
    }

    /// Whether the token with this prefix still works.
    pub(crate) fn is_valid(&self, prefix: &str) -> bool {
        self.origin(prefix).is_ok()
    }

    /// Whether the token with this prefix is known not to work any more. While the store cannot be read, nothing is known.
    pub fn has_ended(&self, prefix: &str) -> bool {
        matches!(self.origin(prefix), Err(AuthError::Unknown | AuthError::Expired | AuthError::Revoked))
    }

    /// The valid tokens of a workspace that may run code in its sandboxes.
    pub(crate) fn runners(&self, workspace: &WorkspaceName) -> Vec<Origin> {
        let listed = self.store.tokens_of(workspace).unwrap_or_default();
        let prefixes = listed.into_iter().map(|token| token.prefix).chain([ENVIRONMENT.to_owned()]);
        let origins = prefixes.filter_map(|prefix| self.origin(&prefix).ok());
        let may_run = |origin: &Origin| origin.principal.sees(workspace) && origin.principal.scope.allows(Scope::Run);
        origins.filter(may_run).collect()
    }

    fn touch(&self, row: &TokenRow, now: Timestamp) {
        let fresh = |last: Timestamp| (0..TOUCH_EVERY_MS).contains(&(now.as_millisecond() - last.as_millisecond()));
        if row.info.last_used_at.is_some_and(fresh) {
            return;
        }
        // A full disk must not lock out a user who could free space.
        if let Err(error) = self.store.touch_token(&row.info.prefix, now) {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot write when a token was last used");
        }
    }
}

/// A valid token, without its secret.
pub(crate) struct Origin {
    pub(crate) principal: Principal,
    pub(crate) hash: blake3::Hash,
}

fn check_validity(row: &TokenRow, now: Timestamp) -> Result<(), AuthError> {
    if row.revoked_at.is_some() {
        return Err(AuthError::Revoked);
    }
    if row.info.expires_at.is_some_and(|at| at <= now) {
        return Err(AuthError::Expired);
    }
    Ok(())
}

fn principal(info: TokenInfo) -> Principal {
    Principal { workspace: info.workspace, scope: info.scope, token_prefix: info.prefix, name: info.name }
}

/// A person who can set the server's environment runs the server, so the token is an operator's.
fn environment_principal() -> Principal {
    Principal {
        workspace: WorkspaceName::default(),
        scope: Scope::Operator,
        token_prefix: ENVIRONMENT.to_owned(),
        name: TOKEN_VARIABLE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandling_wire::Dialect;

    use super::*;
    use crate::fixture::Fixture;
    use crate::{CreatedToken, NewToken};

    fn token(fixture: &Fixture, expires_at: Option<Timestamp>) -> CreatedToken {
        let new =
            NewToken { expires_at, name: "ci".to_owned(), ..NewToken::new(&WorkspaceName::default(), Scope::Run) };
        fixture.tokens.create(&new).unwrap()
    }

    #[test]
    fn a_good_token_names_its_principal() {
        let fixture = Fixture::new();
        let token = token(&fixture, None);
        let principal = fixture.tokens.authenticate(token.secret.expose()).unwrap();
        assert_eq!(principal.scope, Scope::Run);
        assert_eq!((principal.name.as_str(), principal.token_prefix), ("ci", token.info.prefix));
    }

    #[test]
    fn a_token_works_in_every_form() {
        let fixture = Fixture::new();
        let token = token(&fixture, None);
        for dialect in [Dialect::Native, Dialect::PandaStack, Dialect::E2b] {
            let principal = fixture.tokens.authenticate(&dialect.token(token.secret.expose())).unwrap();
            assert_eq!(principal.token_prefix, token.info.prefix);
        }
    }

    #[test]
    fn missing_and_unknown_tokens_are_told_apart() {
        let fixture = Fixture::new();
        assert!(matches!(fixture.tokens.authenticate(""), Err(AuthError::Missing)));
        assert!(matches!(fixture.tokens.authenticate("hello"), Err(AuthError::Malformed)));
        let never = format!("sdl_{}", "0".repeat(40));
        assert!(matches!(fixture.tokens.authenticate(&never), Err(AuthError::Unknown)));
    }

    #[test]
    fn a_known_prefix_with_another_ending_is_unknown() {
        let fixture = Fixture::new();
        let token = token(&fixture, None);
        let guess = format!("{}{}", token.info.prefix, "0".repeat(32));
        assert!(matches!(fixture.tokens.authenticate(&guess), Err(AuthError::Unknown)));
    }

    #[test]
    fn a_token_works_until_the_moment_it_expires() {
        let fixture = Fixture::new();
        let token = token(&fixture, Some(Timestamp::now() + Duration::from_secs(60)));
        let (secret, end) = (token.secret.expose(), token.info.expires_at.unwrap());
        assert!(fixture.tokens.authenticate_at(secret, end - Duration::from_nanos(1)).is_ok());
        assert!(matches!(fixture.tokens.authenticate_at(secret, end), Err(AuthError::Expired)));
    }

    #[test]
    fn a_token_revoked_by_another_process_is_refused_at_once() {
        let fixture = Fixture::new();
        let token = token(&fixture, None);
        assert!(fixture.tokens.authenticate(token.secret.expose()).is_ok());
        let other = fixture.another_process();
        other.tokens.revoke(&WorkspaceName::default(), &token.info.prefix).unwrap();
        assert!(matches!(fixture.tokens.authenticate(token.secret.expose()), Err(AuthError::Revoked)));
    }

    #[test]
    fn the_last_use_is_written_at_most_once_a_minute() {
        let fixture = Fixture::new();
        let token = token(&fixture, None);
        let last = || fixture.tokens.find(&WorkspaceName::default(), &token.info.prefix).unwrap().last_used_at;
        let start = Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap();
        for (seconds, expected) in [(0, 0), (30, 0), (59, 0), (60, 60), (70, 60)] {
            let now = start + Duration::from_secs(seconds);
            fixture.tokens.authenticate_at(token.secret.expose(), now).unwrap();
            assert_eq!(last(), Some(start + Duration::from_secs(expected)), "after {seconds} s");
        }
    }

    #[test]
    fn the_environments_token_is_an_operator_and_is_never_stored() {
        let fixture = Fixture::new().with_environment_token("from-a-container");
        let principal = fixture.tokens.authenticate("from-a-container").unwrap();
        assert_eq!((principal.scope, principal.workspace), (Scope::Operator, WorkspaceName::default()));
        assert!(matches!(fixture.tokens.authenticate("from-a-containe"), Err(AuthError::Malformed)));
        let names: Vec<_> = fixture.tokens.list(&WorkspaceName::default()).unwrap();
        assert!(names.iter().all(|token| token.prefix != principal.token_prefix));
    }

    #[test]
    fn an_empty_environment_token_is_ignored() {
        let fixture = Fixture::new().with_environment_token("");
        assert!(matches!(fixture.tokens.authenticate(""), Err(AuthError::Missing)));
    }
}
