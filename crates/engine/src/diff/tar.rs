//! Added and changed files as a tar, which is sent while it is made. Removed files are not in it.

use sandling_protocol::{EntryKind, TreeEntry};
use tar::{EntryType, Header};

use super::content::Reading;
use super::{Diff, DiffError};
use crate::link::LinkError;

const BLOCK: usize = 512;

/// A tar that is being made.
pub struct TarStream {
    diff: Diff,
    next: usize,
    file: Option<Sending>,
    ended: bool,
}

/// A file whose head has been sent.
struct Sending {
    reading: Reading,
    left: u64,
    padding: usize,
}

impl Diff {
    pub fn into_tar(self) -> TarStream {
        TarStream { diff: self, next: 0, file: None, ended: false }
    }
}

impl TarStream {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, DiffError> {
        loop {
            if let Some(file) = &mut self.file {
                let bytes = file.next().await?;
                if bytes.is_none() {
                    self.file = None;
                    continue;
                }
                return Ok(bytes);
            }
            let Some(change) = self.diff.changes.get(self.next) else {
                return Ok((!std::mem::replace(&mut self.ended, true)).then(|| vec![0; 2 * BLOCK]));
            };
            self.next += 1;
            let Some(state) = change.after.as_ref().filter(|state| state.kind != EntryKind::Other) else { continue };
            let head = head(&change.path, state);
            if state.kind == EntryKind::File {
                let path = self.diff.path_in_guest(&change.path);
                let reading = Reading::open(self.diff.to.link(), &path, Some(state.size))?;
                self.file = Some(Sending { reading, left: state.size, padding: padding(state.size) });
            }
            return Ok(Some(head));
        }
    }
}

impl Sending {
    /// Exactly as many bytes as the header announces. If the file shrank or was removed meanwhile, zeros fill the rest, as
    /// with `tar`.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, DiffError> {
        while self.left > 0 {
            let mut bytes = match self.reading.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) | Err(LinkError::Failed(_)) => vec![0; self.left.min(64 * 1024) as usize],
                Err(error) => return Err(error.into()),
            };
            bytes.truncate(self.left.min(bytes.len() as u64) as usize);
            self.left -= bytes.len() as u64;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        let padding = std::mem::take(&mut self.padding);
        Ok((padding > 0).then(|| vec![0; padding]))
    }
}

fn padding(bytes: u64) -> usize {
    (BLOCK - (bytes % BLOCK as u64) as usize) % BLOCK
}

/// The blocks before a file's bytes. Names that do not fit come in a block of their own.
fn head(path: &str, state: &TreeEntry) -> Vec<u8> {
    let mut header = Header::new_gnu();
    let kind = match state.kind {
        EntryKind::Directory => EntryType::Directory,
        EntryKind::Symlink => EntryType::Symlink,
        EntryKind::File | EntryKind::Other => EntryType::Regular,
    };
    header.set_entry_type(kind);
    header.set_size(if state.kind == EntryKind::File { state.size } else { 0 });
    header.set_mode(state.mode);
    header.set_uid(state.uid.into());
    header.set_gid(state.gid.into());
    header.set_mtime(u64::try_from(state.modified_unix_seconds).unwrap_or(0));
    let mut head = Vec::new();
    let path = if state.kind == EntryKind::Directory { format!("{path}/") } else { path.to_owned() };
    let fields = header.as_old_mut();
    if !fits(&mut fields.name, &path) {
        head.extend(long_name(EntryType::GNULongName, &path));
    }
    let target = state.target.as_deref().unwrap_or_default();
    if !fits(&mut fields.linkname, target) {
        head.extend(long_name(EntryType::GNULongLink, target));
    }
    header.set_cksum();
    head.extend_from_slice(header.as_bytes());
    head
}

/// Writes as much of a name as fits, and returns whether all of it did.
fn fits(field: &mut [u8; 100], name: &str) -> bool {
    let length = name.len().min(field.len());
    field[..length].copy_from_slice(&name.as_bytes()[..length]);
    length == name.len()
}

fn long_name(kind: EntryType, name: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    fits(&mut header.as_old_mut().name, "././@LongLink");
    // With the zero that ends it.
    let size = name.len() as u64 + 1;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.resize(bytes.len() + 1 + padding(size), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_by_others() {
        let state = |kind, size, target: Option<&str>| TreeEntry {
            path: String::new(),
            kind,
            size,
            mode: 0o755,
            uid: 1000,
            gid: 7,
            inode: 1,
            changed_unix_nanos: 0,
            modified_unix_seconds: 1_700_000_000,
            target: target.map(str::to_owned),
        };
        let long = format!("{}/{}", "d".repeat(120), "ü".repeat(80));
        let mut bytes = head("dir", &state(EntryKind::Directory, 0, None));
        bytes.extend(head(&long, &state(EntryKind::File, 3, None)));
        bytes.extend(b"abc");
        bytes.resize(bytes.len() + padding(3), 0);
        bytes.extend(head("link", &state(EntryKind::Symlink, 0, Some(&long))));
        bytes.extend([0; 2 * BLOCK]);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let link = entry.link_name().unwrap().map(|link| link.to_string_lossy().into_owned());
            (path, entry.size(), entry.header().uid().unwrap(), link)
        });
        let entries: Vec<_> = entries.collect();
        let expected = [
            ("dir/".to_owned(), 0, 1000, None),
            (long.clone(), 3, 1000, None),
            ("link".to_owned(), 0, 1000, Some(long)),
        ];
        assert_eq!(entries, expected);
    }
}
