//! Blocks on their way to the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::allocator::Allocator;
use super::error::Ext4Error;
use super::extents::{self, Extent};
use super::geometry::{BLOCK, Geometry};

/// Neighbouring blocks are written together, up to this many bytes.
const MOST_PENDING: usize = 1 << 20;

const ZERO: [u8; BLOCK] = [0; BLOCK];

/// Allocates blocks and writes them.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    out: File,
    pub(crate) geometry: Geometry,
    pub(crate) allocator: Allocator,
    /// Blocks that were not written yet, and the first one's number.
    pending: Vec<u8>,
    pending_start: u32,
}

impl BlockWriter {
    /// Empties the file and gives it the disk's size.
    pub(crate) fn new(out: &File, disk_mib: u32) -> Result<Self, Ext4Error> {
        let geometry = Geometry::new(disk_mib)?;
        let out = out.try_clone()?;
        out.set_len(0)?;
        out.set_len(u64::from(disk_mib) << 20)?;
        let allocator = Allocator::new(&geometry);
        Ok(Self { out, geometry, allocator, pending: Vec::with_capacity(MOST_PENDING), pending_start: 0 })
    }

    pub(crate) fn full(&self) -> Ext4Error {
        Ext4Error::DiskTooSmall { disk_mib: self.geometry.disk_mib }
    }

    /// Writes the next free block.
    pub(crate) fn append(&mut self, block: &[u8]) -> Result<u32, Ext4Error> {
        debug_assert_eq!(block.len(), BLOCK);
        let number = self.allocator.allocate().ok_or_else(|| self.full())?;
        let follows = self.pending_start as usize + self.pending.len() / BLOCK == number as usize;
        if !follows || self.pending.len() >= MOST_PENDING {
            self.flush()?;
            self.pending_start = number;
        }
        self.pending.extend_from_slice(block);
        Ok(number)
    }

    /// Writes blocks whose numbers the caller has.
    pub(crate) fn write(&self, block: u32, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all_at(bytes, u64::from(block) * BLOCK as u64)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write(self.pending_start, &self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Gives blocks back. Their content becomes a hole.
    pub(crate) fn free(&mut self, extents: &[Extent]) -> Result<(), Ext4Error> {
        if extents.is_empty() {
            return Ok(());
        }
        self.flush()?;
        for extent in extents {
            let (first, length) = (extent.start, u32::from(extent.length));
            (first..first + length).for_each(|block| self.allocator.free(block));
            let (offset, bytes) = (u64::from(first) * BLOCK as u64, u64::from(length) * BLOCK as u64);
            match fallocate(&self.out, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
                // The blocks may become inode tables, which must be zero.
                Err(Errno::OPNOTSUPP) => (first..first + length).try_for_each(|block| self.write(block, &ZERO))?,
                result => result.map_err(io::Error::from)?,
            }
        }
        Ok(())
    }
}

/// The content of one file, written from its start to its end.
pub(crate) struct FileContent<'a> {
    blocks: &'a mut BlockWriter,
    extents: Vec<Extent>,
    /// The block that is not complete yet, and its number in the file.
    partial: Vec<u8>,
    logical: u32,
}

impl<'a> FileContent<'a> {
    pub(crate) fn new(blocks: &'a mut BlockWriter, size: u64) -> Result<Self, Ext4Error> {
        // Blocks of a file have numbers of 32 bits, and the last one is reserved.
        if size > u64::from(u32::MAX - 1) * BLOCK as u64 {
            return Err(Ext4Error::FileTooLarge { size });
        }
        Ok(Self { blocks, extents: Vec::new(), partial: Vec::new(), logical: 0 })
    }

    /// Adds bytes at an offset, which is not before the end of the bytes so far. Skipped bytes are zero.
    pub(crate) fn write(&mut self, offset: u64, mut bytes: &[u8]) -> Result<(), Ext4Error> {
        let logical = (offset / BLOCK as u64) as u32;
        if logical != self.logical {
            self.end_partial()?;
            self.logical = logical;
        }
        let within = (offset % BLOCK as u64) as usize;
        if self.partial.len() < within {
            self.partial.resize(within, 0);
        }
        while !bytes.is_empty() {
            if self.partial.is_empty() && bytes.len() >= BLOCK {
                let (block, rest) = bytes.split_at(BLOCK);
                self.put(block)?;
                bytes = rest;
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - self.partial.len()));
            self.partial.extend_from_slice(part);
            bytes = rest;
            if self.partial.len() == BLOCK {
                self.end_partial()?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Vec<Extent>, Ext4Error> {
        self.end_partial()?;
        Ok(self.extents)
    }

    fn end_partial(&mut self) -> Result<(), Ext4Error> {
        if self.partial.is_empty() {
            return Ok(());
        }
        let mut block = std::mem::take(&mut self.partial);
        block.resize(BLOCK, 0);
        self.put(&block)?;
        block.clear();
        self.partial = block;
        Ok(())
    }

    /// A block of zeros becomes a hole.
    fn put(&mut self, block: &[u8]) -> Result<(), Ext4Error> {
        if block != ZERO {
            let number = self.blocks.append(block)?;
            extents::push(&mut self.extents, self.logical, number);
        }
        self.logical += 1;
        Ok(())
    }
}
