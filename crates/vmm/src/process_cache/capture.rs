//! Captures a process from outside: its pages, and the plan by which it is made again.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::areas::{Area, READ, WRITE};
use super::descriptors::{self, Renamed};
use super::pages_name;
use crate::jail::{LAYERS, MEMORY};
use crate::memory::pages::{PAGE, copy_memory, push, written};
use crate::memory::{Extent, Frozen, MemoryMap};
use crate::plan::{self, RESERVED, SCRATCH_ADDRESS, Step};

/// How far a process's first stack may grow. The kernel would let it grow; a mapping does not.
const STACK_BYTES: u64 = 8 << 20;
/// Holes up to this size are stored along with their neighbours: every extent is a mapping.
const CLOSE_BYTES: u64 = 16 * PAGE;
/// Far more than QEMU has, guest memory aside. This bounds what a compromised QEMU can make us store and read.
const MOST_STORED_BYTES: u64 = 1 << 30;
const MOST_MAPPED_BYTES: u64 = 8 << 30;

/// A process whose pages are stored. Its plan depends on how guest memory is saved.
#[derive(Debug)]
pub struct CapturedProcess {
    /// The steps before and after those that map guest memory.
    before: Vec<Step<String>>,
    after: Vec<Step<String>>,
    files: u64,
    guest: Range<u64>,
    pub stored_bytes: u64,
}

/// Writes the pages of a frozen copy's process, except guest memory, to `out`.
///
/// `resumed_from` is the number of files of pages that the process was itself resumed from and that the new file is to
/// be put on top of; with 0, everything is stored. `layers` are files that were the machine's own and are layers now:
/// their inodes, and the layers' names. The capture fails if the process has anything that could not be made again.
pub fn capture(
    frozen: &Frozen,
    resumed_from: usize,
    layers: &[(u64, String)],
    out: &mut impl Write,
) -> io::Result<CapturedProcess> {
    let table = frozen.thread_table().ok_or_else(|| io::Error::other("its threads could not be recorded"))?;
    let guest = frozen.guest_memory();
    let areas = Area::read_all(frozen.file("maps")?)?;
    let own = own_areas(&areas, &guest)?;
    let memory = frozen.file("mem")?;
    let pagemap = frozen.file("pagemap")?;
    let (mut below, mut extents) = (Vec::new(), Vec::new());
    let mut at = 0;
    for area in &own {
        let covered = area.resumed_from().filter(|_| resumed_from > 0);
        for range in ranges_to_store(area, &pagemap, covered.is_some())? {
            let extent = Extent { guest: range.start, bytes: range.end - range.start, layer: resumed_from as u64, at };
            at += extent.bytes;
            if at > MOST_STORED_BYTES {
                return Err(too_large());
            }
            copy_memory(&memory, range, area.inode != 0, out)?;
            extents.push(extent);
        }
        below.extend(covered);
    }
    let map = MemoryMap::default().under(&below).under(&extents);
    let mut before = move_vdso(&areas);
    before.extend((0..=resumed_from).map(|number| Step::OpenFile { path: format!("{LAYERS}/{}", pages_name(number)) }));
    before.extend(own.iter().flat_map(|area| map_area(area, &map)));
    let guest_files = areas.iter().filter(|area| area.overlaps(&guest) && area.inode != 0).map(|area| area.inode);
    let mut after = descriptors::steps(frozen.process(), &Renamed { layers, guest: guest_files.collect() })?;
    // If the copy has ended meanwhile, it has neither memory nor descriptors, and what was read may be incomplete.
    memory.read_exact_at(&mut [0; 8], table)?;
    if after.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    after.push(Step::StartThreads { table });
    Ok(CapturedProcess { before, after, files: resumed_from as u64 + 1, guest, stored_bytes: at })
}

impl CapturedProcess {
    /// The plan that makes the process again over guest memory that was saved with this map.
    pub fn plan(self, guest: &MemoryMap) -> Vec<u8> {
        let Self { before: mut steps, after, files, guest: Range { start, end }, .. } = self;
        let (base, protection) = (files + 1, READ | WRITE);
        let layers = guest.extents().iter().map(|extent| extent.layer + 1).max().unwrap_or(0);
        steps.push(Step::OpenFile { path: MEMORY.to_owned() });
        steps.extend((0..layers).map(|layer| Step::OpenFile { path: format!("{MEMORY}.{layer:02}") }));
        steps.push(Step::Map { address: start, bytes: end - start, protection, file: base, at: 0 });
        steps.extend(guest.extents().iter().map(|extent| Step::Map {
            address: start + extent.guest,
            bytes: extent.bytes,
            protection,
            file: base + 1 + extent.layer,
            at: extent.at,
        }));
        steps.push(Step::CloseFiles { count: base + layers });
        steps.extend(after);
        encode(steps)
    }
}

fn encode(steps: Vec<Step<String>>) -> Vec<u8> {
    let mut bytes: Vec<u8> = plan::header().into_iter().flat_map(u64::to_le_bytes).collect();
    for step in steps {
        plan::write(step, |word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

/// The mappings that make up the process, apart from the kernel's and guest memory.
fn own_areas<'a>(areas: &'a [Area], guest: &Range<u64>) -> io::Result<Vec<&'a Area>> {
    let was_resumed = areas.iter().any(|area| area.resumed_from().is_some());
    if let Some(area) = areas.iter().find(|area| !was_resumed && area.overlaps(&RESERVED)) {
        return Err(unknown("mapping", &area.name));
    }
    // The kernel gave the resume program a stack, which nothing uses any more.
    let is_left_over = |area: &Area| was_resumed && (area.is_stack() || area.overlaps(&RESERVED));
    let is_own = |area: &&Area| !area.is_kernels() && !area.overlaps(guest) && !is_left_over(area);
    let own: Vec<&Area> = areas.iter().filter(is_own).collect();
    let readable = own.iter().filter(|area| area.protection != 0).map(|area| area.bytes());
    if readable.sum::<u64>() > MOST_MAPPED_BYTES { Err(too_large()) } else { Ok(own) }
}

/// Moves the parts of the vDSO, the last of which is its code, to where the process has them. All of them pass through
/// a reserved address: where one is now, another may have to go.
fn move_vdso(areas: &[Area]) -> Vec<Step<String>> {
    let parts: Vec<&Area> = areas.iter().filter(|area| area.is_kernels() && area.name != "[vsyscall]").collect();
    let (Some(first), Some(code)) = (parts.first(), parts.last()) else { return Vec::new() };
    let scratch = |part: &Area| SCRATCH_ADDRESS + (part.range.start - first.range.start);
    let away = parts.iter().map(|part| {
        let offset = part.range.start.wrapping_sub(code.range.start);
        Step::MoveVdso { offset, bytes: part.bytes(), to: scratch(part) }
    });
    let back = parts.iter().map(|part| Step::Move { from: scratch(part), bytes: part.bytes(), to: part.range.start });
    away.chain(back).collect()
}

/// Maps zeros, and over them the stored parts, unless those are all of it.
fn map_area(area: &Area, map: &MemoryMap) -> Vec<Step<String>> {
    let (protection, end) = (area.protection, area.range.end);
    let start = if area.is_stack() { area.range.start.min(end - STACK_BYTES) } else { area.range.start };
    let zeros = Step::Map { address: start, bytes: end - start, protection, file: 0, at: 0 };
    let extents: Vec<Extent> = map.within(area.range.clone()).collect();
    let stored_bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
    let stored = extents.into_iter().map(|Extent { guest: address, bytes, layer, at }| Step::Map {
        address,
        bytes,
        protection,
        file: layer + 1,
        at,
    });
    Some(zeros).filter(|_| stored_bytes < end - start).into_iter().chain(stored).collect()
}

/// The parts of an area that have to be stored: pages that were written, and all of a file that is not one of pages.
fn ranges_to_store(area: &Area, pagemap: &File, is_covered: bool) -> io::Result<Vec<Range<u64>>> {
    if area.protection == 0 {
        return Ok(Vec::new());
    }
    if area.inode != 0 && !is_covered {
        return Ok(vec![area.range.clone()]);
    }
    let start = area.range.start;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in written(pagemap, start, area.bytes())? {
        let range = start + range.start..start + range.end;
        match ranges.last_mut() {
            Some(last) if range.start - last.end <= CLOSE_BYTES => last.end = range.end,
            _ => push(&mut ranges, range),
        }
    }
    Ok(ranges)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the process is larger than QEMU can be")
}

/// The error for something that a resumed process would not have as it is.
pub(super) fn unknown(what: &str, text: &str) -> io::Error {
    io::Error::other(format!("the process has a {what} that cannot be restored: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Reader;
    use proptest::prelude::*;

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn any_step() -> impl Strategy<Value = Step<String>> {
        let path = "[a-z/]{0,20}";
        prop_oneof![
            any::<[u64; 3]>().prop_map(|[offset, bytes, to]| Step::MoveVdso { offset, bytes, to }),
            any::<[u64; 3]>().prop_map(|[from, bytes, to]| Step::Move { from, bytes, to }),
            path.prop_map(|path| Step::OpenFile { path }),
            any::<[u64; 5]>().prop_map(|[address, bytes, protection, file, at]| Step::Map {
                address,
                bytes,
                protection,
                file,
                at
            }),
            any::<u64>().prop_map(|count| Step::CloseFiles { count }),
            any::<[u64; 2]>().prop_map(|[fd, flags]| Step::SetFlags { fd, flags }),
            any::<[u64; 3]>().prop_map(|[fd, count, flags]| Step::EventFd { fd, count, flags }),
            any::<[u64; 3]>().prop_map(|[fd, mask, flags]| Step::SignalFd { fd, mask, flags }),
            any::<[u64; 2]>().prop_map(|[fd, flags]| Step::Epoll { fd, flags }),
            (any::<[u64; 2]>(), path).prop_map(|([fd, flags], path)| Step::OpenDescriptor { fd, flags, path }),
            any::<[u64; 2]>().prop_map(|[from, fd]| Step::Duplicate { from, fd }),
            any::<u64>().prop_map(|table| Step::StartThreads { table }),
        ]
    }

    /// The same step with another kind of path, by way of its text.
    fn text(step: &impl std::fmt::Debug) -> String {
        format!("{step:?}")
    }

    proptest! {
        #[test]
        fn a_plan_is_read_as_it_was_written(steps in proptest::collection::vec(any_step(), 0..20)) {
            let words = words(&encode(steps.clone()));
            let mut reader = Reader::new(&words).unwrap();
            for step in steps {
                prop_assert_eq!(text(&reader.step().unwrap()), text(&step));
            }
            prop_assert!(reader.step().is_none());
        }

        #[test]
        fn any_words_are_steps_or_refused(noise in proptest::collection::vec(0u64..20, 0..60)) {
            let words: Vec<u64> = plan::header().into_iter().chain(noise).collect();
            let mut reader = Reader::new(&words).unwrap();
            while reader.step().is_some() {}
        }
    }

    #[test]
    fn zeros_are_mapped_only_where_something_is_not_stored() {
        let area = Area { range: 0x1000..0x4000, protection: READ, inode: 0, at: 0, name: String::new() };
        let stored = |guest: u64, bytes| MemoryMap::default().under(&[Extent { guest, bytes, layer: 0, at: 0 }]);
        let mapped = |address, bytes, file| Step::Map { address, bytes, protection: READ, file, at: 0 };
        assert_eq!(map_area(&area, &stored(0x1000, 0x3000)), [mapped(0x1000, 0x3000, 1)]);
        let expected = [mapped(0x1000, 0x3000, 0), mapped(0x2000, 0x1000, 1)];
        assert_eq!(map_area(&area, &stored(0x2000, 0x1000)), expected);
    }

    #[test]
    fn a_plan_of_another_version_is_not_read() {
        let [magic, version] = plan::header();
        assert!(Reader::new(&[magic, version]).is_some());
        assert!(Reader::new(&[magic, version + 1]).is_none());
        assert!(Reader::new(&[0, 0]).is_none() && Reader::new(&[magic]).is_none());
    }

    #[test]
    fn every_part_of_the_vdso_leaves_before_one_arrives() {
        let area = |range: Range<u64>, name: &str| Area { range, protection: READ, inode: 0, at: 0, name: name.into() };
        let areas = [area(0x4000..0x8000, "[vvar]"), area(0x8000..0xa000, "[vdso]"), area(1..2, "[vsyscall]")];
        let expected = [
            Step::MoveVdso { offset: 0x4000u64.wrapping_neg(), bytes: 0x4000, to: SCRATCH_ADDRESS },
            Step::MoveVdso { offset: 0, bytes: 0x2000, to: SCRATCH_ADDRESS + 0x4000 },
            Step::Move { from: SCRATCH_ADDRESS, bytes: 0x4000, to: 0x4000 },
            Step::Move { from: SCRATCH_ADDRESS + 0x4000, bytes: 0x2000, to: 0x8000 },
        ];
        assert_eq!(move_vdso(&areas), expected);
    }
}
