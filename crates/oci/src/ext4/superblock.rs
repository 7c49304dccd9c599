//! The superblock and the table of group descriptors.

use crate::blocks::le::{put16, put32};
use crate::blocks::{BLOCK, BLOCKS_PER_GROUP, DESCRIPTOR_SIZE, Geometry, INODE_SIZE};

pub(super) const FIRST_INODE: u32 = 11;

const LABEL: &[u8] = b"sandling";
/// Fixed, so that they do not reveal where or when an image was made.
const UUID: [u8; 16] = [0x5a, 0x4d, 0x11, 0x96, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1];
pub(super) const HASH_SEED: [u8; 16] = [0x5a, 0x4d, 0x11, 0x96, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 2];

const EXT_ATTR: u32 = 0x8;
const DIR_INDEX: u32 = 0x20;
const FILETYPE: u32 = 0x2;
const EXTENTS: u32 = 0x40;
const FLEX_BG: u32 = 0x200;
const SPARSE_SUPER: u32 = 0x1;
const LARGE_FILE: u32 = 0x2;
const HUGE_FILE: u32 = 0x8;
const DIR_NLINK: u32 = 0x20;
const EXTRA_ISIZE: u32 = 0x40;

/// User attributes and access lists are on by default.
const MOUNT_OPTIONS: u32 = 0x4 | 0x8;
const HALF_MD4: u8 = 1;
const SIGNED_HASH: u32 = 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub block_bitmap: u32,
    pub inode_bitmap: u32,
    pub inode_table: u32,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
}

pub(super) fn descriptors(geometry: &Geometry, groups: &[Group]) -> Vec<u8> {
    let mut table = vec![0; geometry.descriptor_blocks as usize * BLOCK];
    for (entry, group) in table.chunks_mut(DESCRIPTOR_SIZE).zip(groups) {
        put32(entry, 0, group.block_bitmap);
        put32(entry, 4, group.inode_bitmap);
        put32(entry, 8, group.inode_table);
        put16(entry, 12, group.free_blocks as u16);
        put16(entry, 14, group.free_inodes as u16);
        put16(entry, 16, group.directories as u16);
    }
    table
}

/// The 1024 bytes of the copy in one group.
pub(super) fn superblock(
    geometry: &Geometry,
    groups: &[Group],
    inodes_per_group: u32,
    overhead: u32,
    group: u32,
) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let mut number = |at, value| put32(&mut bytes, at, value);
    number(0, inodes_per_group * geometry.groups);
    number(4, geometry.blocks);
    number(12, groups.iter().map(|group| group.free_blocks).sum());
    number(16, groups.iter().map(|group| group.free_inodes).sum());
    number(24, 2);
    number(28, 2);
    number(32, BLOCKS_PER_GROUP);
    number(36, BLOCKS_PER_GROUP);
    number(40, inodes_per_group);
    number(76, 1);
    number(84, FIRST_INODE);
    number(92, EXT_ATTR | DIR_INDEX);
    number(96, FILETYPE | EXTENTS | FLEX_BG);
    number(100, SPARSE_SUPER | LARGE_FILE | HUGE_FILE | DIR_NLINK | EXTRA_ISIZE);
    number(256, MOUNT_OPTIONS);
    number(352, SIGNED_HASH);
    number(584, overhead);
    put16(&mut bytes, 54, u16::MAX);
    put16(&mut bytes, 56, 0xef53);
    put16(&mut bytes, 58, 1);
    put16(&mut bytes, 60, 1);
    put16(&mut bytes, 88, INODE_SIZE as u16);
    put16(&mut bytes, 90, group as u16);
    put16(&mut bytes, 348, 32);
    put16(&mut bytes, 350, 32);
    bytes[104..120].copy_from_slice(&UUID);
    bytes[120..120 + LABEL.len()].copy_from_slice(LABEL);
    bytes[236..252].copy_from_slice(&HASH_SEED);
    bytes[252] = HALF_MD4;
    // 16 groups are one flexible group, as with mke2fs.
    bytes[372] = 4;
    bytes
}
