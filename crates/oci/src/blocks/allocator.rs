//! Which blocks are in use.

use super::geometry::{BLOCKS_PER_GROUP, Geometry};

const WORDS_PER_GROUP: usize = BLOCKS_PER_GROUP as usize / 64;

/// One bit for each block. Blocks are handed out in ascending order. Freed blocks are used again only when the end of the
/// disk is reached, so that the content of most files is contiguous.
#[derive(Debug)]
pub(crate) struct Allocator {
    words: Vec<u64>,
    next: u32,
    blocks: u32,
}

impl Allocator {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let words = vec![0; geometry.groups as usize * WORDS_PER_GROUP];
        let mut allocator = Self { words, next: 0, blocks: geometry.blocks };
        for group in geometry.groups_with_superblock() {
            let first = Geometry::first_block(group);
            (first..=first + geometry.descriptor_blocks).for_each(|block| allocator.set(block));
        }
        // The bits behind the last block must be set.
        (geometry.blocks..geometry.groups * BLOCKS_PER_GROUP).for_each(|block| allocator.set(block));
        allocator
    }

    fn set(&mut self, block: u32) {
        self.words[block as usize / 64] |= 1 << (block % 64);
    }

    fn is_set(&self, block: u32) -> bool {
        self.words[block as usize / 64] & (1 << (block % 64)) != 0
    }

    /// The next free block; `None`: the disk is full.
    pub(crate) fn allocate(&mut self) -> Option<u32> {
        let block = self.find_free(self.next, self.blocks).or_else(|| self.find_free(0, self.next))?;
        self.set(block);
        self.next = block + 1;
        Some(block)
    }

    /// The first of several free blocks in a row, inside of one group's worth of blocks.
    pub(crate) fn allocate_run(&mut self, count: u32) -> Option<u32> {
        let start = self.find_run(self.next, self.blocks, count).or_else(|| self.find_run(0, self.blocks, count))?;
        (start..start + count).for_each(|block| self.set(block));
        self.next = start + count;
        Some(start)
    }

    fn find_free(&self, from: u32, to: u32) -> Option<u32> {
        let mut block = from;
        while block < to {
            let free = !self.words[block as usize / 64] >> (block % 64);
            if free != 0 {
                return Some(block + free.trailing_zeros()).filter(|block| *block < to);
            }
            block = (block / 64 + 1) * 64;
        }
        None
    }

    fn find_run(&self, from: u32, to: u32, count: u32) -> Option<u32> {
        let mut start = self.find_free(from, to)?;
        loop {
            let end = start.checked_add(count).filter(|end| *end <= to)?;
            match (start..end).rev().find(|block| self.is_set(*block)) {
                None => return Some(start),
                Some(used) => start = self.find_free(used + 1, to)?,
            }
        }
    }

    pub(crate) fn free(&mut self, block: u32) {
        self.words[block as usize / 64] &= !(1 << (block % 64));
    }

    /// The bitmap of a group, and how many of its blocks are free.
    pub(crate) fn bitmap(&self, group: u32) -> (Vec<u8>, u32) {
        let words = &self.words[group as usize * WORDS_PER_GROUP..][..WORDS_PER_GROUP];
        let used: u32 = words.iter().map(|word| word.count_ones()).sum();
        (words.iter().flat_map(|word| word.to_le_bytes()).collect(), BLOCKS_PER_GROUP - used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_handed_out_in_order_and_used_again_at_the_end() {
        let geometry = Geometry::new(16).unwrap();
        let mut allocator = Allocator::new(&geometry);
        let first = allocator.allocate().unwrap();
        assert_eq!(first, 2);
        assert_eq!(allocator.allocate(), Some(3));
        allocator.free(2);
        assert_eq!(allocator.allocate_run(100), Some(4));
        let all: Vec<u32> = std::iter::from_fn(|| allocator.allocate()).collect();
        assert_eq!(all, (104..geometry.blocks).chain([2]).collect::<Vec<_>>());
        assert_eq!(allocator.bitmap(0), (vec![255; 4096], 0));
    }

    #[test]
    fn a_run_skips_blocks_in_use() {
        let mut allocator = Allocator::new(&Geometry::new(512).unwrap());
        let second_group = BLOCKS_PER_GROUP;
        allocator.next = second_group - 10;
        assert_eq!(allocator.allocate_run(20), Some(second_group + 2));
    }
}
