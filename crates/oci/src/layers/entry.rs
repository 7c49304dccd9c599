//! One entry of a layer.

use super::tree::Metadata;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink { target: Vec<u8> },
    HardLink { target: Vec<u8> },
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
}

/// An entry's header. Its content is read from the [`super::TarReader`] that returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub path: Vec<u8>,
    pub kind: EntryKind,
    pub metadata: Metadata,
    /// The size of a regular file, with its holes.
    pub size: u64,
    /// Where the bytes that follow belong in a sparse file. `None`: the file is not sparse.
    pub segments: Option<Vec<Segment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub offset: u64,
    pub length: u64,
}
