//! Writes everything except the content of files, when the tree is complete.

use super::directory::{DirectoryEntry, write_linear};
use super::inode::{self, DirectoryContent};
use super::superblock::{FIRST_INODE, Group, descriptors, superblock};
use crate::blocks::{BLOCK, BlockWriter, Ext4Error, Geometry, INODE_SIZE, INODES_PER_BLOCK};
use crate::layers::{Inode, InodeId, NodeKind, Tree};

const ROOT_INODE: u32 = 2;
const MOST_INODES_PER_GROUP: u32 = 8 * BLOCK as u32;

/// The guest creates files, too: one inode for each 16 KiB of the disk, and some more than the image has.
const BLOCKS_PER_INODE: u32 = 4;
const SPARE_INODES: u32 = 1024;

/// What was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub inodes: u64,
    /// Blocks with content or metadata of files and directories; bitmaps and inode tables are not counted.
    pub used_blocks: u64,
}

/// Writes directories, inodes, bitmaps and superblocks.
pub(crate) fn write_metadata(tree: &Tree, out: BlockWriter) -> Result<Written, Ext4Error> {
    let numbers = Numbers::assign(tree);
    let mut writer = MetadataWriter::new(&numbers, out)?;
    let reserved = writer.out.geometry;
    let overhead = writer.overhead;
    writer.write_inodes(tree, &numbers)?;
    writer.write_groups(&numbers)?;
    let free: u64 = writer.groups.iter().map(|group| u64::from(group.free_blocks)).sum();
    Ok(Written {
        inodes: numbers.order.len() as u64,
        used_blocks: u64::from(reserved.blocks) - free - u64::from(overhead),
    })
}

/// The numbers of inodes: depth-first in the order of names, so that they depend only on the tree.
struct Numbers {
    by_id: Vec<u32>,
    /// Each inode and the number of the directory in which it was found first.
    order: Vec<(InodeId, u32)>,
}

impl Numbers {
    fn assign(tree: &Tree) -> Self {
        let mut numbers = Self { by_id: vec![0; tree.id_bound()], order: Vec::new() };
        let mut waiting = vec![(Tree::ROOT, ROOT_INODE)];
        while let Some((id, parent)) = waiting.pop() {
            if numbers.of(id) != 0 {
                continue;
            }
            let number = if id == Tree::ROOT { ROOT_INODE } else { FIRST_INODE - 1 + numbers.order.len() as u32 };
            numbers.by_id[Tree::index(id)] = number;
            numbers.order.push((id, parent));
            let children = tree.children(id).into_iter().flat_map(|children| children.values().rev());
            waiting.extend(children.map(|child| (child.id, number)));
        }
        numbers
    }

    fn of(&self, id: InodeId) -> u32 {
        self.by_id[Tree::index(id)]
    }

    /// The largest number in use.
    fn last(&self) -> u32 {
        FIRST_INODE - 2 + self.order.len() as u32
    }
}

struct MetadataWriter {
    out: BlockWriter,
    groups: Vec<Group>,
    inodes_per_group: u32,
    /// Blocks of superblocks, descriptors, bitmaps and inode tables.
    overhead: u32,
    /// Inodes of the group that is being written.
    table: Vec<u8>,
    table_group: usize,
}

impl MetadataWriter {
    /// Allocates bitmaps and inode tables.
    fn new(numbers: &Numbers, mut out: BlockWriter) -> Result<Self, Ext4Error> {
        out.flush()?;
        let geometry = out.geometry;
        let inodes = (geometry.blocks / BLOCKS_PER_INODE).max(numbers.last() + SPARE_INODES);
        let inodes_per_group = inodes.div_ceil(geometry.groups).next_multiple_of(INODES_PER_BLOCK);
        if inodes_per_group > MOST_INODES_PER_GROUP {
            return Err(out.full());
        }
        let table_blocks = inodes_per_group / INODES_PER_BLOCK;
        let mut groups = Vec::with_capacity(geometry.groups as usize);
        for _ in 0..geometry.groups {
            let mut run = |count| out.allocator.allocate_run(count);
            let places = (|| Some((run(1)?, run(1)?, run(table_blocks)?)))();
            let (block_bitmap, inode_bitmap, inode_table) = places.ok_or_else(|| out.full())?;
            let unknown = 0;
            groups.push(Group {
                block_bitmap,
                inode_bitmap,
                inode_table,
                free_blocks: unknown,
                free_inodes: unknown,
                directories: 0,
            });
        }
        let copies = geometry.groups_with_superblock().count() as u32 * (1 + geometry.descriptor_blocks);
        let overhead = copies + geometry.groups * (2 + table_blocks);
        Ok(Self { out, groups, inodes_per_group, overhead, table: Vec::new(), table_group: 0 })
    }

    fn write_inodes(&mut self, tree: &Tree, numbers: &Numbers) -> Result<(), Ext4Error> {
        for (id, parent) in &numbers.order {
            let inode = tree.get(*id);
            let number = numbers.of(*id);
            let (directory, links) = match &inode.kind {
                NodeKind::Directory { .. } => {
                    let (content, links) = self.write_directory(tree, numbers, *id, *parent)?;
                    (Some(content), links)
                }
                _ => (None, inode.links),
            };
            let Inode { kind, metadata, .. } = inode;
            let bytes = inode::build(kind, metadata, links, directory, &mut self.out)?;
            self.put_inode(number, &bytes)?;
            if tree.is_directory(*id) {
                self.groups[((number - 1) / self.inodes_per_group) as usize].directories += 1;
            }
        }
        self.end_table()?;
        Ok(self.out.flush()?)
    }

    /// Returns a directory's blocks and the number of its links.
    fn write_directory(
        &mut self,
        tree: &Tree,
        numbers: &Numbers,
        id: InodeId,
        parent: u32,
    ) -> Result<(DirectoryContent, u32), Ext4Error> {
        const DIRECTORY: u8 = 2;
        let mut entries = vec![
            DirectoryEntry { inode: numbers.of(id), file_type: DIRECTORY, name: b"." },
            DirectoryEntry { inode: parent, file_type: DIRECTORY, name: b".." },
        ];
        for (name, child) in tree.children(id).into_iter().flatten() {
            let (file_type, _) = inode::file_type(&tree.get(child.id).kind);
            entries.push(DirectoryEntry { inode: numbers.of(child.id), file_type, name });
        }
        let links = entries.iter().filter(|entry| entry.file_type == DIRECTORY).count() as u32;
        Ok((write_linear(&entries, &mut self.out)?, links))
    }

    /// Inodes come in the order of their numbers, so one group's table is in memory at a time.
    fn put_inode(&mut self, number: u32, bytes: &[u8; INODE_SIZE]) -> Result<(), Ext4Error> {
        let group = ((number - 1) / self.inodes_per_group) as usize;
        if group != self.table_group {
            self.end_table()?;
            self.table_group = group;
        }
        let at = ((number - 1) % self.inodes_per_group) as usize * INODE_SIZE;
        self.table.resize(at, 0);
        self.table.extend_from_slice(bytes);
        Ok(())
    }

    fn end_table(&mut self) -> Result<(), Ext4Error> {
        self.out.write(self.groups[self.table_group].inode_table, &self.table)?;
        self.table.clear();
        Ok(())
    }

    fn write_groups(&mut self, numbers: &Numbers) -> Result<(), Ext4Error> {
        for group in 0..self.out.geometry.groups {
            let (bitmap, free_blocks) = self.out.allocator.bitmap(group);
            let used_inodes = numbers.last().saturating_sub(group * self.inodes_per_group).min(self.inodes_per_group);
            let at = &mut self.groups[group as usize];
            at.free_blocks = free_blocks;
            at.free_inodes = self.inodes_per_group - used_inodes;
            // A bitmap of a free group stays a hole.
            if bitmap.iter().any(|byte| *byte != 0) {
                self.out.write(at.block_bitmap, &bitmap)?;
            }
            self.out.write(at.inode_bitmap, &inode_bitmap(used_inodes, self.inodes_per_group))?;
        }
        let geometry = self.out.geometry;
        let table = descriptors(&geometry, &self.groups);
        for group in geometry.groups_with_superblock() {
            let first = Geometry::first_block(group);
            let bytes = superblock(&geometry, &self.groups, self.inodes_per_group, self.overhead, group);
            let mut block = vec![0; BLOCK];
            // The first kilobyte of the disk is for boot loaders.
            let at = if group == 0 { 1024 } else { 0 };
            block[at..at + bytes.len()].copy_from_slice(&bytes);
            self.out.write(first, &block)?;
            self.out.write(first + 1, &table)?;
        }
        Ok(())
    }
}

/// The first inodes are in use; the bits behind the last inode must be set.
fn inode_bitmap(used: u32, all: u32) -> Vec<u8> {
    let mut bitmap = vec![0; BLOCK];
    bitmap[..used as usize / 8].fill(0xff);
    if !used.is_multiple_of(8) {
        bitmap[used as usize / 8] = (1 << (used % 8)) - 1;
    }
    // A table fills its blocks, so the number of inodes is a multiple of 16.
    bitmap[all as usize / 8..].fill(0xff);
    bitmap
}
