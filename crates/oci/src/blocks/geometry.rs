//! The parts of the file system that depend only on its size.

use super::error::Ext4Error;

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS_PER_GROUP: u32 = 8 * BLOCK as u32;
pub(crate) const INODE_SIZE: usize = 256;
pub(crate) const INODES_PER_BLOCK: u32 = (BLOCK / INODE_SIZE) as u32;
pub(crate) const DESCRIPTOR_SIZE: usize = 32;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub disk_mib: u32,
    pub blocks: u32,
    pub groups: u32,
    /// Blocks of the table of group descriptors.
    pub descriptor_blocks: u32,
}

impl Geometry {
    pub(crate) const LEAST_MIB: u32 = 16;
    pub(crate) const MOST_MIB: u32 = 1 << 20;

    pub(crate) fn new(disk_mib: u32) -> Result<Self, Ext4Error> {
        if !(Self::LEAST_MIB..=Self::MOST_MIB).contains(&disk_mib) {
            return Err(Ext4Error::BadSize { disk_mib });
        }
        // A last group with little room behind its own metadata is left out, as mke2fs does.
        const LEAST_ROOM: u32 = 50;
        let blocks = disk_mib << 8;
        let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
        let descriptor_blocks = (groups * DESCRIPTOR_SIZE as u32).div_ceil(BLOCK as u32);
        let last = blocks - (groups - 1) * BLOCKS_PER_GROUP;
        let all = Self { disk_mib, blocks, groups, descriptor_blocks };
        if groups > 1 && last < 1 + descriptor_blocks + LEAST_ROOM {
            return Ok(Self { blocks: blocks - last, groups: groups - 1, ..all });
        }
        Ok(all)
    }

    pub(crate) fn first_block(group: u32) -> u32 {
        group * BLOCKS_PER_GROUP
    }

    /// Whether a group has a copy of the superblock and the descriptors (feature sparse_super).
    pub(crate) fn has_superblock(group: u32) -> bool {
        let is_power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        group <= 1 || is_power_of(3) || is_power_of(5) || is_power_of(7)
    }

    pub(crate) fn groups_with_superblock(&self) -> impl Iterator<Item = u32> {
        (0..self.groups).filter(|group| Self::has_superblock(*group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_superblock_are_in_powers_of_3_5_and_7() {
        let groups: Vec<u32> = (0..100).filter(|group| Geometry::has_superblock(*group)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
    }

    #[test]
    fn a_tiny_last_group_is_left_out() {
        let geometry = Geometry::new(128 * 3 + 1).unwrap();
        assert_eq!((geometry.groups, geometry.blocks), (4, (128 * 3 + 1) * 256));
        let terabyte = Geometry::new(1 << 20).unwrap();
        assert_eq!((terabyte.groups, terabyte.descriptor_blocks), (8192, 64));
        assert!(Geometry::new((1 << 20) + 1).is_err());
        assert!(Geometry::new(0).is_err());
    }
}
