//! The 256 bytes of an inode.

use super::xattrs::{self, Holder};
use crate::blocks::le::{put16, put32};
use crate::blocks::{BLOCK, BlockWriter, Ext4Error, Extent, INODE_SIZE, extents};
use crate::layers::{Metadata, NodeKind};

const IS_FIFO: u16 = 0x1000;
const IS_CHAR_DEVICE: u16 = 0x2000;
const IS_DIRECTORY: u16 = 0x4000;
const IS_BLOCK_DEVICE: u16 = 0x6000;
const IS_FILE: u16 = 0x8000;
const IS_SYMLINK: u16 = 0xa000;

const FLAG_EXTENTS: u32 = 0x8_0000;

/// How many bytes of the second half of the inode are in use; attributes follow.
const EXTRA_SIZE: u16 = 32;
const XATTRS_AT: usize = 128 + EXTRA_SIZE as usize;

/// The longest target that is stored in the inode itself.
const INLINE_TARGET: usize = 59;

/// With more names, a directory's count is 1 (feature dir_nlink).
const MOST_LINKS: u32 = 65_000;

/// What the inode's 60 bytes contain.
struct Body {
    bytes: [u8; 60],
    size: u64,
    /// Blocks of content and of the extent tree.
    blocks: u64,
    flags: u32,
}

/// The type, for a directory entry and for the mode.
pub(super) fn file_type(kind: &NodeKind) -> (u8, u16) {
    match kind {
        NodeKind::File { .. } => (1, IS_FILE),
        NodeKind::Directory { .. } => (2, IS_DIRECTORY),
        NodeKind::CharDevice { .. } => (3, IS_CHAR_DEVICE),
        NodeKind::BlockDevice { .. } => (4, IS_BLOCK_DEVICE),
        NodeKind::Fifo => (5, IS_FIFO),
        NodeKind::Symlink { .. } => (7, IS_SYMLINK),
    }
}

/// A directory's content.
pub(super) struct DirectoryContent {
    pub extents: Vec<Extent>,
    pub blocks: u32,
    pub flags: u32,
}

/// Builds an inode; its extent tree and attributes may take blocks.
pub(super) fn build(
    kind: &NodeKind,
    metadata: &Metadata,
    links: u32,
    directory: Option<DirectoryContent>,
    out: &mut BlockWriter,
) -> Result<[u8; INODE_SIZE], Ext4Error> {
    let body = match directory {
        Some(DirectoryContent { extents, blocks, flags }) => {
            let body = extents_body(u64::from(blocks) * BLOCK as u64, &extents, out)?;
            Body { flags: body.flags | flags, ..body }
        }
        None => body(kind, out)?,
    };
    let mut inode = [0; INODE_SIZE];
    let mut blocks = body.blocks;
    let holder = match kind {
        NodeKind::File { .. } | NodeKind::Directory { .. } => Holder::FileOrDirectory,
        _ => Holder::Other,
    };
    let attributes = xattrs::stored(&metadata.xattrs, holder);
    if !xattrs::write_in_inode(&mut inode[XATTRS_AT..], &attributes) {
        let block = xattrs::block(&attributes).ok_or(Ext4Error::XattrsTooLarge)?;
        put32(&mut inode, 104, out.append(&block)?);
        blocks += 1;
    }
    put16(&mut inode, 0, file_type(kind).1 | metadata.mode);
    put32(&mut inode, 4, body.size as u32);
    put32(&mut inode, 108, (body.size >> 32) as u32);
    put16(&mut inode, 26, if links > MOST_LINKS { 1 } else { links as u16 });
    let sectors = blocks * (BLOCK / 512) as u64;
    put32(&mut inode, 28, sectors as u32);
    put16(&mut inode, 116, (sectors >> 32) as u16);
    put32(&mut inode, 32, body.flags);
    inode[40..100].copy_from_slice(&body.bytes);
    put_owner(&mut inode, metadata);
    put_times(&mut inode, metadata);
    put16(&mut inode, 128, EXTRA_SIZE);
    Ok(inode)
}

fn body(kind: &NodeKind, out: &mut BlockWriter) -> Result<Body, Ext4Error> {
    let in_inode = |bytes, size| Body { bytes, size, blocks: 0, flags: 0 };
    match kind {
        NodeKind::File { size, extents } => extents_body(*size, extents, out),
        NodeKind::Symlink { target } if target.len() <= INLINE_TARGET => {
            let mut bytes = [0; 60];
            bytes[..target.len()].copy_from_slice(target);
            Ok(in_inode(bytes, target.len() as u64))
        }
        NodeKind::Symlink { target } => {
            let mut block = target.clone();
            block.resize(BLOCK, 0);
            let extent = Extent { logical: 0, start: out.append(&block)?, length: 1 };
            extents_body(target.len() as u64, &[extent], out)
        }
        NodeKind::CharDevice { major, minor } | NodeKind::BlockDevice { major, minor } => {
            Ok(in_inode(device_numbers(*major, *minor), 0))
        }
        NodeKind::Fifo | NodeKind::Directory { .. } => Ok(in_inode([0; 60], 0)),
    }
}

fn extents_body(size: u64, extents: &[Extent], out: &mut BlockWriter) -> Result<Body, Ext4Error> {
    let (bytes, tree_blocks) = extents::write_tree(extents, out)?;
    Ok(Body { bytes, size, blocks: extents::block_count(extents) + tree_blocks, flags: FLAG_EXTENTS })
}

/// Small numbers have an old encoding, others a new one behind it.
fn device_numbers(major: u32, minor: u32) -> [u8; 60] {
    let mut bytes = [0; 60];
    if major < 256 && minor < 256 {
        put32(&mut bytes, 0, major << 8 | minor);
    } else {
        put32(&mut bytes, 4, (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12);
    }
    bytes
}

fn put_owner(inode: &mut [u8], metadata: &Metadata) {
    put16(inode, 2, metadata.uid as u16);
    put16(inode, 120, (metadata.uid >> 16) as u16);
    put16(inode, 24, metadata.gid as u16);
    put16(inode, 122, (metadata.gid >> 16) as u16);
}

/// All four times are the time of the last change, so that the image depends only on its input.
fn put_times(inode: &mut [u8], metadata: &Metadata) {
    // Two more bits than 32 are stored: the times until 2446.
    const LEAST: i64 = i32::MIN as i64;
    const MOST: i64 = LEAST + (1 << 34) - 1;
    let seconds = metadata.seconds.clamp(LEAST, MOST);
    let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32;
    let extra = metadata.nanoseconds << 2 | epoch;
    for at in [8, 12, 16, 144] {
        put32(inode, at, seconds as u32);
    }
    for at in [132, 136, 140, 148] {
        put32(inode, at, extra);
    }
}
