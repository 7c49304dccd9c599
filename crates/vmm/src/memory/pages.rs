//! The pages that a process wrote, as ranges to be stored.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

pub(crate) const PAGE: u64 = 4096;

/// Bits of `/proc/PID/pagemap`. A page of a private file mapping belongs to the file until the process writes to it.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

const ENTRIES_AT_ONCE: usize = 1 << 15;
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// The ranges, relative to `address`, of the pages that the process has written.
pub(crate) fn written(pagemap: &File, address: u64, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut buffer = vec![0u8; ENTRIES_AT_ONCE * 8];
    let pages = bytes / PAGE;
    let mut page = 0;
    while page < pages {
        let count = ((pages - page) as usize).min(ENTRIES_AT_ONCE);
        let entries = &mut buffer[..count * 8];
        pagemap.read_exact_at(entries, (address / PAGE + page) * 8)?;
        for entry in entries.chunks_exact(8) {
            let entry = u64::from_le_bytes(entry.try_into().expect("chunks of eight bytes"));
            if entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0 {
                push(&mut ranges, page * PAGE..(page + 1) * PAGE);
            }
            page += 1;
        }
    }
    Ok(ranges)
}

/// Copies a range of a process's memory to `out`. In a mapping of a file, pages behind its end cannot be read; they are
/// stored as zeros.
pub(crate) fn copy_memory(memory: &File, range: Range<u64>, of_file: bool, out: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES.min((range.end - range.start) as usize)];
    let mut from = range.start;
    while from < range.end {
        let length = ((range.end - from) as usize).min(buffer.len());
        match memory.read_exact_at(&mut buffer[..length], from) {
            Err(_) if of_file => read_by_pages(memory, from, &mut buffer[..length]),
            read => read?,
        }
        out.write_all(&buffer[..length])?;
        from += length as u64;
    }
    Ok(())
}

fn read_by_pages(memory: &File, from: u64, buffer: &mut [u8]) {
    for (page, number) in buffer.chunks_mut(PAGE as usize).zip(0u64..) {
        if memory.read_exact_at(page, from + number * PAGE).is_err() {
            page.fill(0);
        }
    }
}

pub(crate) fn push(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end >= next.start => last.end = last.end.max(next.end),
        _ => ranges.push(next),
    }
}

/// All ranges, in order and without overlap.
pub(super) fn union(one: Vec<Range<u64>>, other: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut all = one;
    all.extend(other);
    all.sort_by_key(|range| range.start);
    let mut ranges = Vec::with_capacity(all.len());
    for range in all {
        push(&mut ranges, range);
    }
    ranges
}

/// Merges ranges until there are at most `most`, across the smallest gaps first: every range becomes a mapping, and the
/// kernel limits those.
pub(super) fn coalesced(mut ranges: Vec<Range<u64>>, most: usize) -> Vec<Range<u64>> {
    let mut gap = PAGE;
    while ranges.len() > most.max(1) {
        ranges = closed(ranges, gap);
        gap *= 2;
    }
    ranges
}

/// Merges ranges across gaps of at most this many bytes.
pub(super) fn closed(ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    let mut fewer: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match fewer.last_mut() {
            Some(last) if range.start - last.end <= gap => last.end = range.end,
            _ => fewer.push(range),
        }
    }
    fewer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_is_in_order_and_disjoint() {
        let one = vec![0..PAGE, 4 * PAGE..6 * PAGE];
        let other = [PAGE..2 * PAGE, 5 * PAGE..7 * PAGE];
        assert_eq!(union(one, other.into_iter()), [0..2 * PAGE, 4 * PAGE..7 * PAGE]);
    }

    #[test]
    fn the_smallest_gaps_are_closed_first() {
        let ranges = vec![0..PAGE, 2 * PAGE..3 * PAGE, 100 * PAGE..101 * PAGE];
        assert_eq!(coalesced(ranges.clone(), 3), ranges);
        assert_eq!(coalesced(ranges.clone(), 2), [0..3 * PAGE, 100 * PAGE..101 * PAGE]);
        assert_eq!(coalesced(ranges, 1), vec![Range { start: 0, end: 101 * PAGE }]);
    }

    #[test]
    fn only_gaps_up_to_the_given_size_are_closed() {
        let ranges = vec![0..PAGE, 2 * PAGE..3 * PAGE, 6 * PAGE..7 * PAGE];
        assert_eq!(closed(ranges.clone(), 2 * PAGE), [0..3 * PAGE, 6 * PAGE..7 * PAGE]);
        assert_eq!(closed(ranges, 3 * PAGE), vec![Range { start: 0, end: 7 * PAGE }]);
    }

    #[test]
    fn the_pages_that_were_written_to_a_private_mapping_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * PAGE).unwrap();
        let bytes = 16 * PAGE as usize;
        // SAFETY: a fresh private mapping of a file that nothing else uses, unmapped by the end of the process.
        let mapped = unsafe {
            let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, rustix::mm::MapFlags::PRIVATE, &file, 0).unwrap()
        };
        // SAFETY: within the mapping.
        let pages = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), bytes) };
        assert_eq!(pages[3 * PAGE as usize], 0, "a page that was only read");
        pages[PAGE as usize] = 1;
        pages[2 * PAGE as usize] = 1;
        pages[9 * PAGE as usize] = 1;
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let found = written(&pagemap, mapped as u64, 16 * PAGE).unwrap();
        assert_eq!(found, [PAGE..3 * PAGE, 9 * PAGE..10 * PAGE]);
    }
}
