//! The token that the first start makes and stores in the home, where the CLI finds it.
//!
//! It is an operator's token: a person who can read this file can also write the database beside it. If it is lost or
//! revoked, the next start makes another.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sandling_wire::{Home, local_token_path, read_local_token};

use super::authenticate::AuthError;
use super::scope::Scope;
use super::token::{NewToken, TokenError, Tokens};
use crate::workspaces::WorkspaceName;

const NAME: &str = "made at first start";
const OWNER_ONLY: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum LocalTokenError {
    #[error("cannot store the first token in {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot make the first token")]
    Token(#[from] TokenError),
}

impl Tokens {
    /// Makes sure that the file holds a token that works.
    pub(crate) fn ensure_local_token(&self, home: &Home) -> Result<(), LocalTokenError> {
        let path = local_token_path(home);
        let failed = |source| LocalTokenError::File { path: path.clone(), source };
        // Of two processes that start at once, the second finds the token of the first.
        let lock = File::open(home.root()).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        if let Some(present) = read_local_token(home).map_err(failed)?
            && self.is_operators(&present)?
        {
            return fs::set_permissions(&path, Permissions::from_mode(OWNER_ONLY)).map_err(failed);
        }
        let new = NewToken { name: NAME.to_owned(), ..NewToken::new(&WorkspaceName::default(), Scope::Operator) };
        let created = self.create(&new)?;
        write_for_owner(&path, created.secret.expose()).map_err(failed)
    }

    fn is_operators(&self, token: &str) -> Result<bool, LocalTokenError> {
        match self.authenticate(token) {
            Ok(principal) => Ok(principal.scope == Scope::Operator),
            Err(AuthError::Store(error)) => Err(TokenError::from(error).into()),
            Err(_) => Ok(false),
        }
    }
}

/// Writes the file atomically, and never readable by other users.
fn write_for_owner(path: &Path, token: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    // An interrupted start may have left this file; the lock makes sure that nobody is writing it now.
    if let Err(error) = fs::remove_file(&beside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&beside)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_first_start_makes_a_token_that_only_its_owner_can_read() {
        let fixture = Fixture::new();
        let token = read_local_token(&fixture.home).unwrap().unwrap();
        assert_eq!(fixture.tokens.authenticate(&token).unwrap().scope, Scope::Operator);
        assert_eq!(mode(&local_token_path(&fixture.home)), 0o600);
    }

    #[test]
    fn the_second_start_keeps_the_token_and_restores_its_permissions() {
        let fixture = Fixture::new();
        let path = local_token_path(&fixture.home);
        let first = fs::read(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let again = fixture.another_process();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(again.tokens.list(&WorkspaceName::default()).unwrap().len(), 1);
    }

    #[test]
    fn a_token_that_stopped_working_is_replaced_at_the_next_start() {
        let fixture = Fixture::new();
        let old = read_local_token(&fixture.home).unwrap().unwrap();
        fixture.tokens.revoke(&WorkspaceName::default(), &old[..12]).unwrap();
        fs::write(local_token_path(&fixture.home).with_extension("new"), "half").unwrap();
        let again = fixture.another_process();
        let new = read_local_token(&fixture.home).unwrap().unwrap();
        assert_ne!(old, new);
        assert!(again.tokens.authenticate(&new).is_ok());
        assert!(matches!(again.tokens.authenticate(&old), Err(AuthError::Revoked)));
    }

    #[test]
    fn simultaneous_first_starts_make_one_token() {
        let (_dir, home) = Fixture::empty_home();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| Fixture::open(&home));
            }
        });
        assert_eq!(Fixture::open(&home).tokens.list(&WorkspaceName::default()).unwrap().len(), 1);
    }
}
