//! The secret that signs preview tokens, stored in the home so that tokens outlive the server.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::random;

const FILE: &str = "secret";
/// Secrets of other nodes are in files of such names.
const OTHER_NODES: &str = "foreign-";

#[derive(Debug, thiserror::Error)]
pub enum NodeKeyError {
    #[error("another node sent a signing key that is not 64 hexadecimal digits")]
    Malformed,
    #[error("the signing keys in the home cannot be read or written")]
    Io(#[from] io::Error),
}

/// The secrets of other nodes.
pub(super) fn read_other_nodes(directory: &Path) -> io::Result<Vec<[u8; 32]>> {
    let mut secrets = Vec::new();
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(OTHER_NODES) {
            // A half that a crash left is none.
            secrets.extend(<[u8; 32]>::try_from(fs::read(entry.path())?));
        }
    }
    Ok(secrets)
}

/// Keeps the secret of another node. False if it is known, or is this home's own.
pub(super) fn add_other_node(directory: &Path, secret: &[u8; 32]) -> io::Result<bool> {
    if read_or_make(directory)? == *secret || read_other_nodes(directory)?.contains(secret) {
        return Ok(false);
    }
    let path = directory.join(format!("{OTHER_NODES}{}", random::hex::<8>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret)?;
    file.sync_all()?;
    Ok(true)
}

/// Reads the secret. The first time, this makes it.
pub(super) fn read_or_make(directory: &Path) -> io::Result<[u8; 32]> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    match read(directory)? {
        Some(secret) => Ok(secret),
        None => make(directory),
    }
}

fn read(directory: &Path) -> io::Result<Option<[u8; 32]>> {
    match fs::read(directory.join(FILE)) {
        Ok(bytes) => {
            bytes.try_into().map(Some).map_err(|_| io::Error::other("the preview secret is damaged; remove it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the secret atomically. If several processes do this at once, all use the secret of the first.
fn make(directory: &Path) -> io::Result<[u8; 32]> {
    let secret = random::bytes::<32>();
    let beside = directory.join(format!("secret.{}", random::hex::<8>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    let placed = fs::hard_link(&beside, directory.join(FILE));
    fs::remove_file(&beside)?;
    match placed {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(directory)?.ok_or_else(|| io::Error::other("the preview secret vanished"))
        }
        Err(error) => Err(error),
    }
}
