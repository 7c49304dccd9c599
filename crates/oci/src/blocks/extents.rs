//! Extents, and the trees in which inodes list them.

use super::content::BlockWriter;
use super::error::Ext4Error;
use super::geometry::BLOCK;
use super::le::{put16, put32};

/// Blocks of a file that follow each other on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first block's number in the file.
    pub logical: u32,
    pub start: u32,
    pub length: u16,
}

const MOST_LENGTH: u16 = 32_768;
const MAGIC: u16 = 0xf30a;
const RECORD: usize = 12;
const IN_INODE: usize = 4;
const IN_BLOCK: usize = (BLOCK - RECORD) / RECORD;

/// Adds a block to the end of a list.
pub(crate) fn push(extents: &mut Vec<Extent>, logical: u32, block: u32) {
    match extents.last_mut() {
        Some(last)
            if last.length < MOST_LENGTH
                && last.logical + u32::from(last.length) == logical
                && last.start + u32::from(last.length) == block =>
        {
            last.length += 1;
        }
        _ => extents.push(Extent { logical, start: block, length: 1 }),
    }
}

pub(crate) fn block_count(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.length)).sum()
}

/// The 60 bytes in the inode, and the number of blocks that the rest of the tree takes.
pub(crate) fn write_tree(extents: &[Extent], blocks: &mut BlockWriter) -> Result<([u8; 60], u64), Ext4Error> {
    let mut records: Vec<(u32, [u8; RECORD])> = extents.iter().map(|extent| (extent.logical, leaf(extent))).collect();
    let mut depth = 0;
    let mut used = 0;
    while records.len() > IN_INODE {
        let mut parents = Vec::with_capacity(records.len().div_ceil(IN_BLOCK));
        for node in records.chunks(IN_BLOCK) {
            let mut bytes = vec![0; BLOCK];
            fill(&mut bytes, node, IN_BLOCK, depth);
            let block = blocks.append(&bytes)?;
            used += 1;
            parents.push((node[0].0, index(node[0].0, block)));
        }
        records = parents;
        depth += 1;
    }
    let mut root = [0; 60];
    fill(&mut root, &records, IN_INODE, depth);
    Ok((root, used))
}

fn fill(node: &mut [u8], records: &[(u32, [u8; RECORD])], most: usize, depth: u16) {
    put16(node, 0, MAGIC);
    put16(node, 2, records.len() as u16);
    put16(node, 4, most as u16);
    put16(node, 6, depth);
    for (at, (_, record)) in records.iter().enumerate() {
        node[RECORD * (at + 1)..][..RECORD].copy_from_slice(record);
    }
}

fn leaf(extent: &Extent) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    put32(&mut record, 0, extent.logical);
    put16(&mut record, 4, extent.length);
    put32(&mut record, 8, extent.start);
    record
}

fn index(logical: u32, block: u32) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    put32(&mut record, 0, logical);
    put32(&mut record, 4, block);
    record
}
