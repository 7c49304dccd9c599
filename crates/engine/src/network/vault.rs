//! Encryption of what must not lie about: values of secrets, and keys of sandboxes' authorities.
//!
//! XChaCha20-Poly1305 under a key in a file of the home that other users cannot read. A copy of the store alone, as
//! backups are, gives nothing away. Each sealed text is bound to what it is for, so that rows cannot be swapped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use sandling_wire::Home;
use zeroize::Zeroizing;

const FILE: &str = "secrets.key";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

pub(crate) struct Vault {
    home: PathBuf,
    cipher: OnceLock<XChaCha20Poly1305>,
}

impl Vault {
    /// The key is read, or made, when it is first needed.
    pub(crate) fn of(home: &Home) -> Self {
        Self { home: home.root().to_owned(), cipher: OnceLock::new() }
    }

    /// Encrypts `text`, to be opened for the same `purpose` only.
    pub(crate) fn seal(&self, purpose: &str, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom(&mut nonce, GetRandomFlags::empty())?;
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        let sealed = self.cipher()?.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| io::Error::other("the text is too long to be encrypted"))?;
        Ok([&nonce[..], &sealed].concat())
    }

    pub(crate) fn open(&self, purpose: &str, sealed: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it was encrypted with another key, or is damaged");
        let (nonce, text) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(wrong)?;
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        let opened = self.cipher()?.decrypt(&XNonce::from(*nonce), payload);
        opened.map(Zeroizing::new).map_err(|_| wrong())
    }

    fn cipher(&self) -> io::Result<&XChaCha20Poly1305> {
        if let Some(cipher) = self.cipher.get() {
            return Ok(cipher);
        }
        let key = self.key()?;
        Ok(self.cipher.get_or_init(|| XChaCha20Poly1305::new(&Key::from(*key))))
    }

    fn key(&self) -> io::Result<Zeroizing<[u8; KEY_BYTES]>> {
        // Two engines that need the first key at once make one.
        let lock = File::open(&self.home)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let path = self.home.join(FILE);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        match File::open(&path) {
            Ok(mut file) => file.read_exact(&mut *key)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                getrandom(&mut *key, GetRandomFlags::empty())?;
                let beside = path.with_extension("new");
                let _ = fs::remove_file(&beside);
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
                file.write_all(&*key)?;
                file.sync_all()?;
                fs::rename(&beside, &path)?;
            }
            Err(error) => return Err(error),
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::store::Store;

    #[test]
    fn what_was_sealed_opens_for_its_purpose_only_and_by_the_next_process_too() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let vault = Vault::of(&home);
        let sealed = vault.seal("default/KEY", b"hunter2").unwrap();
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(*Vault::of(&home).open("default/KEY", &sealed).unwrap(), b"hunter2");
        assert!(vault.open("other/KEY", &sealed).is_err());
        assert!(vault.open("default/KEY", &sealed[..20]).is_err());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn another_key_opens_nothing() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let vault = |dir: &tempfile::TempDir| Vault::of(&Home::new(dir.path().to_owned()));
        let sealed = vault(&here).seal("p", b"x").unwrap();
        assert!(vault(&there).open("p", &sealed).is_err());
    }

    #[test]
    fn a_secret_of_the_first_version_is_decrypted() {
        let golden = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name);
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let rows = fs::read_to_string(golden("store.sql")).unwrap();
        rusqlite::Connection::open(home.store()).unwrap().execute_batch(&rows).unwrap();
        let key = golden("secrets.key.base64");
        let key = std::process::Command::new("base64").arg("--decode").arg(key).output().unwrap();
        fs::write(dir.path().join(FILE), key.stdout).unwrap();
        let secret = Store::open(&home.store()).unwrap().secrets("default").unwrap().remove(0);
        assert_eq!((secret.name.as_str(), secret.hosts.len()), ("API_KEY", 2));
        assert_eq!(secret.placements, [sandling_network::Placement::AnyHeader]);
        let value = Vault::of(&home).open("secret default/API_KEY", &secret.sealed).unwrap();
        assert_eq!(value.as_slice(), b"value-of-the-secret");
    }
}
