//! What must outlast the server for previews to be honest: the secret that signs them, and which were revoked.
//!
//! A revoked token is a file with its id for a name, so looking costs one system call and every process of this home
//! sees it at once. The file says until when it matters.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::PreviewKey;

const SECRET: &str = "secret";
const REVOKED: &str = "revoked";

pub(crate) struct Ledger {
    pub(crate) key: PreviewKey,
    revoked: PathBuf,
}

impl Ledger {
    /// Opens the ledger; the first time, the secret is made.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let revoked = directory.join(REVOKED);
        DirBuilder::new().recursive(true).mode(0o700).create(&revoked)?;
        let secret = match read_secret(directory)? {
            Some(secret) => secret,
            None => make_secret(directory)?,
        };
        let ledger = Self { key: PreviewKey::new(secret), revoked };
        ledger.forget_expired(Timestamp::now())?;
        Ok(ledger)
    }

    /// From the moment this returns, the token is refused.
    pub(crate) fn revoke(&self, workspace: &str, id: &str, until: Timestamp) -> io::Result<()> {
        let mut file = File::create(self.path(workspace, id))?;
        file.write_all(until.as_second().to_string().as_bytes())?;
        file.sync_all()
    }

    pub(crate) fn is_revoked(&self, workspace: &str, id: &str) -> io::Result<bool> {
        self.path(workspace, id).try_exists()
    }

    /// Both are signed or checked before they come here: a workspace's name and hexadecimal digits.
    fn path(&self, workspace: &str, id: &str) -> PathBuf {
        self.revoked.join(format!("{workspace}.{id}"))
    }

    fn forget_expired(&self, now: Timestamp) -> io::Result<()> {
        for entry in fs::read_dir(&self.revoked)?.flatten() {
            let until = fs::read_to_string(entry.path()).ok().and_then(|text| text.parse::<i64>().ok());
            if until.is_some_and(|until| until < now.as_second()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn read_secret(directory: &Path) -> io::Result<Option<[u8; 32]>> {
    match fs::read(directory.join(SECRET)) {
        Ok(bytes) => {
            bytes.try_into().map(Some).map_err(|_| io::Error::other("the preview secret is damaged; remove it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all; the first of several processes wins.
fn make_secret(directory: &Path) -> io::Result<[u8; 32]> {
    let secret = crate::random::bytes::<32>();
    let beside = directory.join(format!("secret.{}", crate::random::hex::<8>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    let placed = fs::hard_link(&beside, directory.join(SECRET));
    fs::remove_file(&beside)?;
    match placed {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_secret(directory)?.ok_or_else(|| io::Error::other("the preview secret vanished"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::preview::PreviewToken;

    #[test]
    fn a_token_outlasts_the_server_that_signed_it_and_so_does_its_end() {
        let home = tempfile::tempdir().unwrap();
        let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
        let token = PreviewToken {
            id: "0123456789abcdef".to_owned(),
            workspace: "default".to_owned(),
            sandbox: "s".to_owned(),
            port: 80,
            paths: vec![],
            expires_unix: (now + hour).as_second(),
        };
        let first = Ledger::open(home.path()).unwrap();
        let signed = first.key.sign(&token);
        assert!(!first.is_revoked("default", &token.id).unwrap());
        first.revoke("default", &token.id, now + hour).unwrap();
        let second = Ledger::open(home.path()).unwrap();
        assert_eq!(second.key.check(&signed, now), Some(token.clone()));
        assert!(second.is_revoked("default", &token.id).unwrap());
        assert!(!second.is_revoked("other", &token.id).unwrap());
    }

    #[test]
    fn what_has_expired_is_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(home.path()).unwrap();
        ledger.revoke("default", "aa", Timestamp::now() - SignedDuration::from_secs(5)).unwrap();
        ledger.revoke("default", "bb", Timestamp::now() + SignedDuration::from_secs(500)).unwrap();
        let ledger = Ledger::open(home.path()).unwrap();
        assert!(!ledger.is_revoked("default", "aa").unwrap() && ledger.is_revoked("default", "bb").unwrap());
    }
}
