//! Extended attributes: behind the inode if they fit there, otherwise in one block.

use std::collections::BTreeMap;

use crate::blocks::BLOCK;
use crate::blocks::le::{put16, put32};

const MAGIC: u32 = 0xea02_0000;
const ENTRY: usize = 16;
const BLOCK_HEADER: usize = 32;

/// Prefixes that ext4 stores as numbers.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];
const ACL_ACCESS: (&[u8], u8) = (b"system.posix_acl_access", 2);
const ACL_DEFAULT: (&[u8], u8) = (b"system.posix_acl_default", 3);

/// An attribute as ext4 stores it. The order is the order in a block.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attribute {
    prefix: u8,
    name_length: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Which attributes a type of file can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    FileOrDirectory,
    /// Linux has no `user.` attributes and no access lists for symbolic links and special files.
    Other,
}

/// The attributes that ext4 can store, in its order. The kernel refuses all others, and umoci leaves them out.
pub(super) fn stored(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>, holder: Holder) -> Vec<Attribute> {
    let mut attributes: Vec<_> = xattrs.iter().filter_map(|(name, value)| attribute(name, value, holder)).collect();
    attributes.sort();
    attributes
}

fn attribute(name: &[u8], value: &[u8], holder: Holder) -> Option<Attribute> {
    for (acl, prefix) in [ACL_ACCESS, ACL_DEFAULT] {
        if name == acl {
            let value = (holder == Holder::FileOrDirectory).then(|| access_list(value))??;
            return Some(Attribute { prefix, name_length: 0, name: Vec::new(), value });
        }
    }
    let (prefix, name) =
        PREFIXES.iter().find_map(|(text, prefix)| Some((*prefix, name.strip_prefix(*text)?.to_vec())))?;
    if name.is_empty() || name.len() > 255 || (prefix == 1 && holder == Holder::Other) {
        return None;
    }
    Some(Attribute { prefix, name_length: name.len(), name, value: value.to_vec() })
}

/// Translates an access list from the format of system calls to that of ext4. `None`: it is malformed, or says no more
/// than the file's mode.
fn access_list(value: &[u8]) -> Option<Vec<u8>> {
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    let entries = value.strip_prefix(&2_u32.to_le_bytes())?;
    let mut stored = 1_u32.to_le_bytes().to_vec();
    let mut says_more = false;
    if !entries.len().is_multiple_of(8) {
        return None;
    }
    for entry in entries.chunks(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let has_id = tag == USER || tag == GROUP;
        stored.extend_from_slice(if has_id { entry } else { &entry[..4] });
        says_more |= has_id || tag == MASK;
    }
    says_more.then_some(stored)
}

/// Fills the space behind an inode; `false`: they do not fit.
pub(super) fn write_in_inode(space: &mut [u8], attributes: &[Attribute]) -> bool {
    if attributes.is_empty() {
        return true;
    }
    let fits = fill(&mut space[4..], 0, attributes, Hash::Absent).is_some();
    if fits {
        put32(space, 0, MAGIC);
    } else {
        space.fill(0);
    }
    fits
}

/// A block with the attributes; `None`: they do not fit.
pub(super) fn block(attributes: &[Attribute]) -> Option<Vec<u8>> {
    let mut block = vec![0; BLOCK];
    let hash = fill(&mut block[BLOCK_HEADER..], BLOCK_HEADER, attributes, Hash::Present)?;
    put32(&mut block, 0, MAGIC);
    put32(&mut block, 4, 1);
    put32(&mut block, 8, 1);
    put32(&mut block, 12, hash);
    Some(block)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Present,
    Absent,
}

/// Writes entries from the start and values from the end. Returns the hash of all entries, or `None` if they do not fit.
fn fill(area: &mut [u8], base: usize, attributes: &[Attribute], hash: Hash) -> Option<u32> {
    const TERMINATOR: usize = 4;
    let mut at = 0;
    let mut end = area.len();
    let mut all = 0_u32;
    for Attribute { prefix, name, value, .. } in attributes {
        let length = ENTRY + name.len().next_multiple_of(4);
        let value_start = end.checked_sub(value.len().next_multiple_of(4))?;
        if at + length + TERMINATOR > value_start {
            return None;
        }
        let entry = &mut area[at..at + length];
        entry[0] = name.len() as u8;
        entry[1] = *prefix;
        put16(entry, 2, if value.is_empty() { 0 } else { (base + value_start) as u16 });
        put32(entry, 8, value.len() as u32);
        entry[ENTRY..ENTRY + name.len()].copy_from_slice(name);
        if hash == Hash::Present {
            let own = entry_hash(name, value);
            put32(entry, 12, own);
            all = all.rotate_left(16) ^ own;
        }
        area[value_start..value_start + value.len()].copy_from_slice(value);
        at += length;
        end = value_start;
    }
    Some(all)
}

fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_that_the_kernel_would_accept_are_stored() {
        let xattrs = |names: &[&str]| names.iter().map(|name| (name.as_bytes().to_vec(), b"v".to_vec())).collect();
        let all = xattrs(&["user.a", "security.b", "trusted.c", "other.d", "system.e", "user."]);
        assert_eq!(stored(&all, Holder::FileOrDirectory).len(), 3);
        assert_eq!(stored(&all, Holder::Other).len(), 2);
    }

    #[test]
    fn attributes_go_behind_the_inode_or_into_a_block_or_nowhere() {
        let of_size = |size| {
            let xattrs = BTreeMap::from([(b"user.a".to_vec(), vec![7; size])]);
            stored(&xattrs, Holder::FileOrDirectory)
        };
        assert!(write_in_inode(&mut [0; 96], &of_size(68)));
        let mut space = [0; 96];
        assert!(!write_in_inode(&mut space, &of_size(69)));
        assert_eq!(space, [0; 96]);
        assert!(block(&of_size(4040)).is_some());
        assert!(block(&of_size(4041)).is_none());
    }
}
