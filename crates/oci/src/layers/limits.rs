//! How much an image may contain.

use serde::{Deserialize, Serialize};

/// Each limit that a layer exceeds has its own error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of all layers, uncompressed.
    pub bytes: u64,
    /// Inodes that exist at the same time.
    pub inodes: u64,
    /// Bytes of one path, and of one link's target.
    pub path_bytes: usize,
    /// Directories above one file.
    pub depth: usize,
    /// Uncompressed bytes for each compressed byte of one layer. Only a layer of more than `ratio_floor` bytes can
    /// exceed it, because small layers of zeros are common.
    pub ratio: u64,
    pub ratio_floor: u64,
    /// Names and values of one file's extended attributes.
    pub xattr_bytes: usize,
    /// Names, link targets and extended attributes of the whole tree, which are kept in memory.
    pub metadata_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            inodes: 2_000_000,
            path_bytes: 4095,
            depth: 512,
            ratio: 250,
            ratio_floor: 256 << 20,
            xattr_bytes: 4000,
            metadata_bytes: 512 << 20,
        }
    }
}
