//! The blocks of a directory.

use super::inode::DirectoryContent;
use crate::blocks::le::{put16, put32};
use crate::blocks::{BLOCK, BlockWriter, Ext4Error, extents};

/// A name in a directory.
pub(super) struct DirectoryEntry<'a> {
    pub inode: u32,
    pub file_type: u8,
    pub name: &'a [u8],
}

impl DirectoryEntry<'_> {
    fn length(&self) -> usize {
        8 + self.name.len().next_multiple_of(4)
    }

    fn write(&self, into: &mut [u8], length: usize) {
        put32(into, 0, self.inode);
        put16(into, 4, length as u16);
        into[6] = self.name.len() as u8;
        into[7] = self.file_type;
        into[8..8 + self.name.len()].copy_from_slice(self.name);
    }
}

/// Writes a directory whose entries are searched one after the other.
pub(super) fn write_linear(
    entries: &[DirectoryEntry<'_>],
    out: &mut BlockWriter,
) -> Result<DirectoryContent, Ext4Error> {
    let mut extents = Vec::new();
    let mut blocks = 0;
    for block in pack(entries) {
        extents::push(&mut extents, blocks, out.append(&block)?);
        blocks += 1;
    }
    Ok(DirectoryContent { extents, blocks, flags: 0 })
}

/// Fills blocks with entries; the last entry of each takes the rest of the block.
fn pack(entries: &[DirectoryEntry<'_>]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let mut used = 0;
        let fitting = rest.iter().take_while(|entry| {
            used += entry.length();
            used <= BLOCK
        });
        let (here, later) = rest.split_at(fitting.count());
        blocks.push(one_block(here));
        rest = later;
    }
    blocks
}

fn one_block(entries: &[DirectoryEntry<'_>]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    for (number, entry) in entries.iter().enumerate() {
        let length = if number + 1 == entries.len() { BLOCK - at } else { entry.length() };
        entry.write(&mut block[at..at + length], length);
        at += length;
    }
    block
}
