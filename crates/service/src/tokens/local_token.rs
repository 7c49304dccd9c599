//! The token that is made at first start and kept where the CLI finds it.
//!
//! It is an operator's: whoever can read this file can also write the store beside it. If it stops working, revoked or
//! lost, the next start makes another.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use sandling_wire::{Home, local_token_path, read_local_token};

use super::authenticate::AuthError;
use super::scope::Scope;
use super::token::NewToken;
use crate::access::{Access, AccessError};
use crate::workspaces::WorkspaceName;

const NAME: &str = "made at first start";
const OWNER_ONLY: u32 = 0o600;

impl Access {
    /// Sees to it that the file holds a token that works.
    pub(crate) fn ensure_local_token(&self, home: &Home) -> Result<(), AccessError> {
        let path = local_token_path(home);
        let failed = |source| AccessError::LocalToken { path: path.clone(), source };
        // Two first starts at once make one token: the second finds the first one's.
        let lock = File::open(home.root()).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        if let Some(present) = read_local_token(home).map_err(failed)?
            && self.is_operators(&present)?
        {
            return fs::set_permissions(&path, Permissions::from_mode(OWNER_ONLY)).map_err(failed);
        }
        let new = NewToken { name: NAME.to_owned(), ..NewToken::new(&WorkspaceName::default(), Scope::Operator) };
        let created = self.create_token(&new)?;
        write_for_owner(&path, created.secret.expose()).map_err(failed)
    }

    fn is_operators(&self, token: &str) -> Result<bool, AccessError> {
        match self.authenticate(token) {
            Ok(principal) => Ok(principal.scope == Scope::Operator),
            Err(AuthError::Store(error)) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }
}

/// Whole or not at all, and at no moment readable by others.
fn write_for_owner(path: &Path, token: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    // Left behind by a start that was cut short; only the holder of the lock comes here.
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
    use crate::AccessSettings;
    use crate::access::tests::Fixture;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_first_start_leaves_a_token_that_only_its_owner_reads() {
        let fixture = Fixture::new();
        let token = read_local_token(&fixture.home).unwrap().unwrap();
        assert_eq!(fixture.access.authenticate(&token).unwrap().scope, Scope::Operator);
        assert_eq!(mode(&local_token_path(&fixture.home)), 0o600);
    }

    #[test]
    fn the_second_start_keeps_it_and_closes_a_file_that_was_opened() {
        let fixture = Fixture::new();
        let path = local_token_path(&fixture.home);
        let first = fs::read(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let again = Access::open(&fixture.home, AccessSettings::default()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(again.tokens(&WorkspaceName::default()).unwrap().len(), 1);
    }

    #[test]
    fn a_token_that_stopped_working_is_replaced_at_the_next_start() {
        let fixture = Fixture::new();
        let old = read_local_token(&fixture.home).unwrap().unwrap();
        fixture.access.revoke_token(&WorkspaceName::default(), &old[..12]).unwrap();
        fs::write(local_token_path(&fixture.home).with_extension("new"), "half").unwrap();
        let again = Access::open(&fixture.home, AccessSettings::default()).unwrap();
        let new = read_local_token(&fixture.home).unwrap().unwrap();
        assert_ne!(old, new);
        assert!(again.authenticate(&new).is_ok());
        assert!(matches!(again.authenticate(&old), Err(AuthError::Revoked)));
    }

    #[test]
    fn many_first_starts_at_once_make_one_token() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        home.prepare().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| Access::open(&home, AccessSettings::default()).unwrap());
            }
        });
        let access = Access::open(&home, AccessSettings::default()).unwrap();
        assert_eq!(access.tokens(&WorkspaceName::default()).unwrap().len(), 1);
    }
}
