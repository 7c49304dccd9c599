//! Files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// Writes a new file beside the old one and renames it at the end, so that a reader sees the old or the new content.
    Replace,
    Append,
    /// Fails if the path exists.
    CreateNew,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: String,
    pub name: String,
    pub kind: EntryKind,
    pub size: u64,
    /// Permission bits, `0o755` for instance.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_unix_ms: i64,
    /// Where a symbolic link points.
    pub target: Option<String>,
    /// What users stored with the file, as extended attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// An entry of a directory tree, with the metadata that tells whether it differs from the same entry in another copy of
/// the disk. The JSON names are short because a machine has tens of thousands of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    #[serde(rename = "p")]
    pub path: String,
    #[serde(rename = "k")]
    pub kind: EntryKind,
    #[serde(rename = "s")]
    pub size: u64,
    #[serde(rename = "m")]
    pub mode: u32,
    #[serde(rename = "u")]
    pub uid: u32,
    #[serde(rename = "g")]
    pub gid: u32,
    #[serde(rename = "i")]
    pub inode: u64,
    /// The change time (ctime), which no program can set.
    #[serde(rename = "c")]
    pub changed_unix_nanos: i64,
    #[serde(rename = "t")]
    pub modified_unix_seconds: i64,
    /// Where a symbolic link points.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A disk that the guest has for a moment. It begins with a block that names it, because the guest may still see the disk
/// that was in the slot before. The content follows, and fills the last block with zeros.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentDisk {
    pub slot: u32,
    pub name: String,
    /// The length of the content.
    pub bytes: u64,
}

impl LentDisk {
    /// All accesses are to whole blocks.
    pub const BLOCK: usize = 4096;

    /// The first block.
    pub fn header(&self) -> Vec<u8> {
        let mut block = self.name.clone().into_bytes();
        block.resize(Self::BLOCK, 0);
        block
    }
}

/// A change under a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub path: String,
    pub kind: ChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Created,
    Modified,
    Removed,
    Renamed,
    Attributes,
    /// Events were lost because they came too fast; list the directory again.
    Overflow,
}
