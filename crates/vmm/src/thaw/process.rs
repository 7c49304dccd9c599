//! What a process is made of, seen from outside: its mappings, its descriptors, its threads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};

use super::SavedProcess;
use super::plan::{Descriptor, Mapping, Plan, pages_name};
use crate::jail::{FILES, LAYERS, MEMORY};
use crate::memory::pages::{PAGE, push, written};
use crate::memory::{Extent, MemoryMap};

const READ: u64 = 1;
const WRITE: u64 = 2;
const EXECUTE: u64 = 4;

/// Where the program is that thaws a process, and what it maps for itself; see `preload/thaw.rs`.
const THAWS: Range<u64> = 0x1000_0000..0x4000_0000;
/// How far a process's first stack may grow. The kernel would let it; a mapping does not.
const STACK_BYTES: u64 = 8 << 20;
/// Holes up to this size are stored along: every extent is a mapping.
const CLOSE_BYTES: u64 = 16 * PAGE;
const BUFFER_BYTES: usize = 1 << 20;
/// Far more than QEMU has, guest memory aside: what somebody who broke into it can make us store, and look through.
const MOST_STORED_BYTES: u64 = 1 << 30;
const MOST_MAPPED_BYTES: u64 = 8 << 30;

/// What a saved process is put together with.
pub(crate) struct Frame<'a> {
    /// Where it has guest memory.
    pub guest: Range<u64>,
    pub table: u64,
    /// How many files of pages it was thawed from; none if it was not, or if they are to be folded into one.
    pub pages: usize,
    /// Files that were its own and are layers now: their inodes, and what they are called among the layers.
    pub layers: &'a [(u64, String)],
    /// The descriptors it was born with.
    pub inherited: Range<i32>,
    /// One of them, a connection whose other end is gone.
    pub closed: i32,
}

/// A line of `/proc/PID/maps`.
struct Area {
    range: Range<u64>,
    protection: u64,
    /// Of the file that it maps, if it does, and from where on.
    inode: u64,
    at: u64,
    name: String,
}

/// Writes the pages of the process to `out` and says how it is made again.
pub(crate) fn save(process: &OwnedFd, frame: &Frame<'_>, out: &mut impl Write) -> io::Result<SavedProcess> {
    let areas = areas(process)?;
    let apart = |area: &&Area| !overlaps(&area.range, &frame.guest) && !overlaps(&area.range, &THAWS);
    // What thawed it was given a stack, too, which nobody is on any more.
    let was_thawed = areas.iter().any(|area| area.thawed_from().is_some());
    if let Some(area) = areas.iter().find(|area| !was_thawed && overlaps(&area.range, &THAWS)) {
        return Err(unknown("a mapping", &area.name));
    }
    let left = |area: &&Area| was_thawed && area.name == "[stack]";
    let own = areas.iter().filter(|area| !is_kernels(area) && apart(area) && !left(area));
    let own: Vec<&Area> = own.collect();
    let readable = own.iter().filter(|area| area.protection != 0).map(|area| area.range.end - area.range.start);
    if readable.sum::<u64>() > MOST_MAPPED_BYTES {
        return Err(too_large());
    }
    let memory = open(process, "mem")?;
    let pagemap = open(process, "pagemap")?;
    let (mut thawed, mut extents) = (Vec::new(), Vec::new());
    let mut at = 0;
    for area in &own {
        let below = area.thawed_from().filter(|_| frame.pages > 0);
        for range in content(area, &pagemap, below.is_some())? {
            let extent = Extent { guest: range.start, bytes: range.end - range.start, layer: frame.pages as u64, at };
            at += extent.bytes;
            if at > MOST_STORED_BYTES {
                return Err(too_large());
            }
            store(&memory, range, area.inode != 0, out)?;
            extents.push(extent);
        }
        thawed.extend(below);
    }
    let map = MemoryMap::default().under(&thawed).under(&extents);
    let mut plan = Plan { kernel: kernels(&areas), table: frame.table, ..Plan::default() };
    plan.files.extend((0..=frame.pages).map(|number| format!("{LAYERS}/{}", pages_name(number))));
    add_own(&mut plan, &own, &map);
    let guest = areas.iter().filter(|area| overlaps(&area.range, &frame.guest));
    let guest_files: Vec<u64> = guest.map(|area| area.inode).filter(|inode| *inode != 0).collect();
    plan.descriptors = descriptors(process, frame, &guest_files)?;
    // One that has ended meanwhile has no memory, and no descriptors; what was read of it may be half of it.
    memory.read_exact_at(&mut [0; 8], frame.table)?;
    if plan.descriptors.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(SavedProcess { plan, guest: frame.guest.clone(), closed: frame.closed, stored_bytes: at })
}

impl SavedProcess {
    /// How the process is made again over guest memory that was saved with this map.
    pub fn plan(mut self, guest: &MemoryMap) -> Vec<u8> {
        let (plan, Range { start, end }) = (&mut self.plan, self.guest);
        let (base, protection) = (plan.files.len(), READ | WRITE);
        plan.files.push(MEMORY.to_owned());
        let layers = guest.extents().iter().map(|extent| extent.layer + 1).max().unwrap_or(0);
        plan.files.extend((0..layers).map(|layer| format!("{MEMORY}.{layer:02}")));
        plan.mappings.push(Mapping { address: start, bytes: end - start, protection, file: Some(base), at: 0 });
        plan.mappings.extend(guest.extents().iter().map(|extent| Mapping {
            address: start + extent.guest,
            bytes: extent.bytes,
            protection,
            file: Some(base + 1 + extent.layer as usize),
            at: extent.at,
        }));
        plan.encode(self.closed)
    }
}

fn add_own(plan: &mut Plan, own: &[&Area], map: &MemoryMap) {
    for area in own {
        let protection = area.protection;
        let mut start = area.range.start;
        if area.name == "[stack]" {
            start = area.range.end - STACK_BYTES.max(area.range.end - start);
        }
        plan.mappings.push(Mapping { address: start, bytes: area.range.end - start, protection, file: None, at: 0 });
        for extent in map.within(area.range.clone()) {
            let file = Some(extent.layer as usize);
            plan.mappings.push(Mapping { address: extent.guest, bytes: extent.bytes, protection, file, at: extent.at });
        }
    }
}

impl Area {
    /// What it is of a file of pages that the process was thawed from.
    fn thawed_from(&self) -> Option<Extent> {
        let layer = self.name.strip_prefix(LAYERS)?.strip_prefix("/thaw.")?.parse().ok()?;
        Some(Extent { guest: self.range.start, bytes: self.range.end - self.range.start, layer, at: self.at })
    }
}

/// The parts of an area that have to be stored: what was written, and what is in a file that is none of pages.
fn content(area: &Area, pagemap: &File, is_thawed: bool) -> io::Result<Vec<Range<u64>>> {
    if area.protection == 0 {
        return Ok(Vec::new());
    }
    if area.inode != 0 && !is_thawed {
        return Ok(vec![area.range.clone()]);
    }
    let start = area.range.start;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in written(pagemap, start, area.range.end - start)? {
        let range = start + range.start..start + range.end;
        match ranges.last_mut() {
            Some(last) if range.start - last.end <= CLOSE_BYTES => last.end = range.end,
            _ => push(&mut ranges, range),
        }
    }
    Ok(ranges)
}

fn store(memory: &File, range: Range<u64>, of_file: bool, out: &mut impl Write) -> io::Result<()> {
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

/// What lies behind the end of a mapped file cannot be read, and is nothing.
fn read_by_pages(memory: &File, from: u64, buffer: &mut [u8]) {
    for (page, number) in buffer.chunks_mut(PAGE as usize).zip(0u64..) {
        if memory.read_exact_at(page, from + number * PAGE).is_err() {
            page.fill(0);
        }
    }
}

fn areas(process: &OwnedFd) -> io::Result<Vec<Area>> {
    let mut text = String::new();
    open(process, "maps")?.read_to_string(&mut text)?;
    text.lines().map(|line| area(line).ok_or_else(|| unknown("a mapping", line))).collect()
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE NAME`
fn area(line: &str) -> Option<Area> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let permissions = words.next().filter(|permissions| permissions.ends_with('p'))?;
    let rights = [('r', READ), ('w', WRITE), ('x', EXECUTE)];
    let protection = rights.iter().filter(|(right, _)| permissions.contains(*right)).map(|(_, bit)| bit).sum();
    let at = u64::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(Area { range, protection, inode, at, name: words.next().unwrap_or_default().to_owned() })
}

fn is_kernels(area: &Area) -> bool {
    area.name.starts_with("[v")
}

fn kernels(areas: &[Area]) -> Vec<(u64, u64)> {
    let parts = areas.iter().filter(|area| is_kernels(area) && area.name != "[vsyscall]");
    parts.map(|area| (area.range.start, area.range.end - area.range.start)).collect()
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn descriptors(process: &OwnedFd, frame: &Frame<'_>, guest_files: &[u64]) -> io::Result<Vec<(i32, Descriptor)>> {
    let directory = openat(process, "fd", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if number <= 2 {
            continue;
        }
        let link = readlinkat(&directory, number.to_string(), Vec::new())?;
        let mut info = String::new();
        open(process, &format!("fdinfo/{number}"))?.read_to_string(&mut info)?;
        found.push((number, descriptor(number, &link.to_string_lossy(), &info, frame, guest_files)?));
    }
    // First those that are made from an inherited one, whose own number may be wanted afterwards.
    found.sort_by_key(|(number, descriptor)| (*descriptor != Descriptor::Closed, *number));
    found.retain(|(number, descriptor)| *descriptor != Descriptor::Closed || *number != frame.closed);
    Ok(found)
}

fn descriptor(number: i32, link: &str, info: &str, frame: &Frame<'_>, guest_files: &[u64]) -> io::Result<Descriptor> {
    const KEPT: u64 = (libc::O_ACCMODE | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_APPEND) as u64;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let octal = field("flags").and_then(|flags| u64::from_str_radix(flags, 8).ok());
    let flags = octal.ok_or_else(|| unknown("a descriptor", info))? & KEPT;
    let made = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    if frame.inherited.contains(&number) && number != frame.closed {
        return Ok(Descriptor::Flags(flags));
    }
    match link {
        "anon_inode:[eventfd]" => {
            let count = field("eventfd-count").and_then(|count| u64::from_str_radix(count, 16).ok());
            Ok(Descriptor::Event { count: count.unwrap_or(0), flags: made })
        }
        "anon_inode:[signalfd]" => {
            let mask = field("sigmask").and_then(|mask| u64::from_str_radix(mask, 16).ok());
            Ok(Descriptor::Signals { mask: mask.unwrap_or(0), flags: made })
        }
        "anon_inode:[eventpoll]" if field("tfd").is_none() => {
            Ok(Descriptor::Poll { flags: made & libc::O_CLOEXEC as u64 })
        }
        _ if link.starts_with("socket:") => Ok(Descriptor::Closed),
        _ if link.starts_with(LAYERS) || link.starts_with("/dev/") => {
            Ok(Descriptor::File { path: link.to_owned(), flags })
        }
        _ => {
            let inode = field("ino").and_then(|inode| inode.parse().ok()).unwrap_or(0);
            if let Some((_, name)) = frame.layers.iter().find(|(layer, _)| *layer == inode) {
                return Ok(Descriptor::File { path: format!("{LAYERS}/{name}"), flags: made });
            }
            // Guest memory, which the keeper opened, and nobody reads by its descriptor.
            if guest_files.contains(&inode) {
                return Ok(Descriptor::File { path: MEMORY.to_owned(), flags: made });
            }
            let own = link.strip_prefix(FILES).is_some_and(|name| name.starts_with('/') && !name.contains(' '));
            if own { Ok(Descriptor::File { path: link.to_owned(), flags }) } else { Err(unknown("a descriptor", link)) }
        }
    }
}

/// The threads of a process, as it knows them itself; its first one first.
pub(crate) fn threads(pid: i32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = std::fs::read_to_string(entry?.path().join("status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        threads.extend(line.and_then(|line| line.split_whitespace().last()?.parse::<u32>().ok()));
    }
    threads.sort_unstable();
    Ok(threads)
}

fn open(process: &OwnedFd, name: &str) -> io::Result<File> {
    Ok(File::from(openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the process is larger than a QEMU is")
}

fn unknown(what: &str, text: &str) -> io::Error {
    io::Error::other(format!("{what} that nobody knows how to make again: {text}"))
}
