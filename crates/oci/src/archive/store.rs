//! The files of an image archive, in a directory or in a tar archive.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::error::ArchiveError;
use crate::digest::Digest;
use crate::spec::Descriptor;

/// Manifests and configurations are a few kilobytes.
const MOST_DOCUMENT: u64 = 8 << 20;

/// An image archive has a few files for each layer.
const MOST_ENTRIES: usize = 20_000;

pub(super) enum Store {
    Directory(PathBuf),
    Tar { file: File, files: HashMap<String, Range> },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub offset: u64,
    pub length: u64,
}

/// What an uncompressed tar archive contains.
pub(super) enum Contents {
    Image(Store),
    /// A root file system: there is no image's document at its top.
    RootFileSystem,
}

impl Store {
    /// Lists a tar archive without reading the content of its files.
    pub(super) fn index(file: &File, path: &Path) -> Result<Contents, ArchiveError> {
        let failed = |source| ArchiveError::Read { path: path.to_owned(), source };
        let mut files = HashMap::new();
        let mut links = Vec::new();
        let mut is_image = false;
        let mut archive = tar::Archive::new(file.try_clone().map_err(failed)?);
        for (count, entry) in archive.entries_with_seek().map_err(failed)?.enumerate() {
            // A file in the wrong format fails at its first header.
            let entry = match entry {
                Err(_) if count == 0 => return Err(ArchiveError::NotAnImage { path: path.to_owned() }),
                entry => entry.map_err(failed)?,
            };
            let Ok(name) = String::from_utf8(entry.path_bytes().into_owned()) else { continue };
            let name = name.trim_start_matches("./").to_owned();
            is_image |= matches!(name.as_str(), "manifest.json" | "oci-layout");
            if entry.header().entry_type().is_file() {
                files.insert(name, Range { offset: entry.raw_file_position(), length: entry.size() });
            } else if let (true, Some(target)) = (entry.header().entry_type().is_symlink(), entry.link_name_bytes()) {
                links.push((name, String::from_utf8_lossy(&target).into_owned()));
            }
            if count >= MOST_ENTRIES {
                match is_image {
                    true => return Err(ArchiveError::TooManyEntries { limit: MOST_ENTRIES }),
                    false => return Ok(Contents::RootFileSystem),
                }
            }
        }
        if !is_image {
            return Ok(Contents::RootFileSystem);
        }
        // `docker save` wrote a layer that occurs twice as a link to the other.
        for (name, target) in links {
            let target = target.trim_start_matches("../");
            if let Some(range) = files.get(target).copied() {
                files.insert(name, range);
            }
        }
        Ok(Contents::Image(Self::Tar { file: file.try_clone().map_err(failed)?, files }))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(directory) => directory.join(name).is_file(),
            Self::Tar { files, .. } => files.contains_key(name),
        }
    }

    /// A file, and which part of it has this name.
    pub(super) fn open(&self, name: &str) -> Result<(File, Range), ArchiveError> {
        match self {
            Self::Directory(directory) => {
                let path = directory.join(name);
                let failed = |source: io::Error| match source.kind() {
                    io::ErrorKind::NotFound => ArchiveError::Missing { name: name.to_owned() },
                    _ => ArchiveError::Read { path: path.clone(), source },
                };
                let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
                let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if !metadata.is_file() {
                    return Err(ArchiveError::Missing { name: name.to_owned() });
                }
                Ok((file, Range { offset: 0, length: metadata.len() }))
            }
            Self::Tar { file, files } => {
                let range = files.get(name).ok_or_else(|| ArchiveError::Missing { name: name.to_owned() })?;
                let file = file.try_clone().map_err(|source| ArchiveError::Read { path: name.into(), source })?;
                Ok((file, *range))
            }
        }
    }

    pub(super) fn document(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let (file, range) = self.open(name)?;
        if range.length > MOST_DOCUMENT {
            return Err(ArchiveError::DocumentTooLarge { name: name.to_owned(), limit: MOST_DOCUMENT });
        }
        let mut bytes = vec![0; range.length as usize];
        let failed = |source| ArchiveError::Read { path: name.into(), source };
        file.read_exact_at(&mut bytes, range.offset).map_err(failed)?;
        Ok(bytes)
    }

    /// A document that a descriptor names. Its digest is compared.
    pub(super) fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ArchiveError> {
        let bytes = self.document(&blob_name(&descriptor.digest))?;
        if Digest::of(&bytes) != descriptor.digest {
            return Err(ArchiveError::DigestMismatch { expected: descriptor.digest.clone() });
        }
        Ok(bytes)
    }
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

pub(super) fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ArchiveError> {
    let failed =
        |error: serde_json::Error| ArchiveError::BadDocument { name: name.to_owned(), reason: error.to_string() };
    serde_json::from_slice(bytes).map_err(failed)
}

/// The name of the first entry in a compressed archive; `None` if it is not a tar archive.
pub(super) fn first_name(reader: impl Read) -> Option<String> {
    let mut archive = tar::Archive::new(reader);
    let entry = archive.entries().ok()?.next()?.ok()?;
    Some(String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned())
}
