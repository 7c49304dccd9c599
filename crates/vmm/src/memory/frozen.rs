//! A copy of a machine's process that does not run, so that its memory can be read while the machine continues.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::map::{Extent, MemoryMap};
use super::pages::{BUFFER_BYTES, PAGE, closed, coalesced, push, union, written};
use super::threads::recordable_threads;
use crate::plan::MOST_THREADS;

/// A copy takes milliseconds; a host on which it takes this long is broken.
const COPY_LIMIT: Duration = Duration::from_secs(20);
/// How long a drop waits for the copy's end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// An extent takes up to two mappings, and the kernel allows a process 65,530.
const MOST_EXTENTS: usize = 16_000;
/// Holes up to this size are stored along with their neighbors in a layer on the base alone, which many machines may be
/// restored from. In each of them, a mapping takes the kernel as long as several pages take here.
const CLOSE_BYTES: u64 = 4 * PAGE;
/// A machine on this many layers is saved on the base alone, because a restore has to open all of them.
const FOLD_LAYERS: usize = if super::MOST_LAYERS < 12 { super::MOST_LAYERS } else { 12 };

/// If a save has at least this much in common with the last one, a sample of so many pages decides whether all of it is
/// compared.
const SAMPLED_FROM_BYTES: u64 = 64 << 20;
const SAMPLES: u64 = 256;
/// How many blocks of pages are read before the first of them is written.
const BLOCKS_AHEAD: usize = 4;

/// How long the machine was stopped, and for what.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreezeTimes {
    pub stop: Duration,
    pub state: Duration,
    pub disk: Duration,
    pub copy: Duration,
    /// From before the stop until the guest ran again.
    pub pause: Duration,
}

/// The copy. It ends when this is dropped, or when the process that holds this dies. Until it has ended, it keeps the
/// machine's disks locked, and the machine's next save would fail; so the drop waits for its end.
#[derive(Debug)]
pub struct Frozen {
    /// Each side sees the connection close when the other ends.
    connection: UnixStream,
    process: OwnedFd,
    address: u64,
    bytes: u64,
    /// Where the copy recorded its threads, or 0 if it could not.
    table: u64,
    pub times: FreezeTimes,
}

/// The pages of a new layer.
#[derive(Debug)]
pub struct NewLayer {
    /// In the order of the layer's file.
    ranges: Vec<Range<u64>>,
    pub map: MemoryMap,
    /// How many layers the map refers to.
    pub layers: usize,
    pub bytes: u64,
}

impl NewLayer {
    /// A layer with these ranges of guest memory, on top of `number` layers with this map. Small ranges come first in its
    /// file: a machine that is resumed while the file is written needs the guest kernel's scattered pages at once, and
    /// the large buffers of programs later, if ever.
    fn new(mut ranges: Vec<Range<u64>>, below: &MemoryMap, number: usize) -> Self {
        ranges.sort_by_key(|range| (range.end - range.start, range.start));
        let mut extents = extents_of(&ranges, number as u64);
        extents.sort_by_key(|extent| extent.guest);
        let bytes = ranges.iter().map(|range| range.end - range.start).sum();
        Self { ranges, map: below.under(&extents), layers: number + 1, bytes }
    }
}

/// Sets a connection up to report which process answers.
pub(crate) fn connect(connection: tokio::net::UnixStream) -> io::Result<UnixStream> {
    let connection = connection.into_std()?;
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(COPY_LIMIT))?;
    set_socket_passcred(&connection, true)?;
    Ok(connection)
}

impl Frozen {
    /// Asks the machine's process for a copy of itself. Its guest must have been stopped. If `record_threads` is set
    /// and the process can be made again, the copy has its threads recorded.
    pub(crate) fn take(
        mut connection: UnixStream,
        original: i32,
        bytes: u64,
        record_threads: bool,
    ) -> io::Result<Self> {
        let threads = if record_threads { recordable_threads(original)? } else { None };
        let threads = threads.filter(|threads| threads.len() < MOST_THREADS);
        let ids = threads.as_deref().unwrap_or_default();
        let words = std::iter::once(ids.len() as u32).chain(ids.iter().copied());
        let words: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        connection.write_all(&words)?;
        let (pid, [address, told, mut table]) = receive(&connection)?;
        // A thread that started or ended meanwhile would be missing from the table, or be in it by mistake.
        if threads.is_none() || recordable_threads(original)? != threads {
            table = 0;
        }
        let process = open(format!("/proc/{pid}"), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // The kernel reports the pid, but another process may have it by now. What is opened here cannot change.
        let sensible = address.is_multiple_of(PAGE) && address.checked_add(bytes).is_some();
        if parent(&process)? != original || told != bytes || !sensible {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer does not come from a copy of the machine's process",
            ));
        }
        Ok(Self { connection, process, address, bytes, table, times: FreezeTimes::default() })
    }

    /// Selects the pages in which the machine differs from `below`, the map over these layers that it was restored with
    /// or last saved as. If a machine could not map that many layers or extents, everything over the base is selected
    /// again, and the new layer is on the base alone.
    pub fn select(&self, below: &MemoryMap, layers: &[File]) -> io::Result<NewLayer> {
        let own = written(&self.file("pagemap")?, self.address, self.bytes)?;
        let memory = self.file("mem")?;
        let changed = match self.is_mostly_changed(&memory, &own, below, layers)? {
            true => own.clone(),
            false => self.changed(&memory, &own, below, layers)?,
        };
        let layer = NewLayer::new(coalesced(changed, MOST_EXTENTS / 2), below, layers.len());
        if layer.layers <= FOLD_LAYERS && layer.map.extents().len() <= MOST_EXTENTS {
            return Ok(layer);
        }
        Ok(whole(own, below))
    }

    /// Selects the pages in which the machine differs from the base alone. It has those of `below` from a layer over it.
    pub fn select_whole(&self, below: &MemoryMap) -> io::Result<NewLayer> {
        Ok(whole(written(&self.file("pagemap")?, self.address, self.bytes)?, below))
    }

    /// Writes the pages of a layer. Only whole pages are written, one after the other. Another thread reads ahead, because
    /// machines may be waiting for these pages.
    pub fn store(&self, layer: &NewLayer, out: &mut impl Write) -> io::Result<()> {
        let memory = self.file("mem")?;
        let (filled, blocks) = mpsc::sync_channel(BLOCKS_AHEAD);
        let (emptied, empty) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for parts in blocks_of(&layer.ranges) {
                    let block = self.read_block(&memory, &parts, empty.try_recv().unwrap_or_default());
                    let failed = block.is_err();
                    if filled.send(block).is_err() || failed {
                        return;
                    }
                }
            });
            blocks.into_iter().try_for_each(|block| {
                let block: Vec<u8> = block?;
                out.write_all(&block)?;
                // The reader has ended if it needs no more.
                let _ = emptied.send(block);
                Ok(())
            })
        })
    }

    /// Reads these ranges of guest memory, one after the other, into a block that may have been used before.
    fn read_block(&self, memory: &File, parts: &[Range<u64>], mut block: Vec<u8>) -> io::Result<Vec<u8>> {
        block.resize(parts.iter().map(|part| part.end - part.start).sum::<u64>() as usize, 0);
        let mut rest = block.as_mut_slice();
        for part in parts {
            let (place, behind) = rest.split_at_mut((part.end - part.start) as usize);
            memory.read_exact_at(place, self.address + part.start)?;
            rest = behind;
        }
        Ok(block)
    }

    /// Lets the copy end once its memory is no longer needed, so that a later drop has less to wait for.
    pub fn release(&self) {
        // This fails if the copy has ended already.
        let _ = self.connection.shutdown(Shutdown::Write);
    }

    /// The directory of the copy under `/proc`.
    pub(crate) fn process(&self) -> &OwnedFd {
        &self.process
    }

    pub(crate) fn guest_memory(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    /// The address of the copy's thread table, if its threads are recorded.
    pub(crate) fn thread_table(&self) -> Option<u64> {
        (self.table != 0).then_some(self.table)
    }

    /// Opens a file of the copy under `/proc`.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        Ok(File::from(openat(&self.process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Whether most pages of these ranges that are in `below` as well have changed, going by a sample. Comparing all of
    /// them would then take longer than to store those that have not changed. A few pages are always compared.
    fn is_mostly_changed(
        &self,
        memory: &File,
        ranges: &[Range<u64>],
        below: &MemoryMap,
        layers: &[File],
    ) -> io::Result<bool> {
        let common: Vec<Extent> = ranges.iter().flat_map(|range| below.within(range.clone())).collect();
        let bytes: u64 = common.iter().map(|extent| extent.bytes).sum();
        if bytes < SAMPLED_FROM_BYTES {
            return Ok(false);
        }
        let step = (bytes / SAMPLES).next_multiple_of(PAGE);
        let (mut samples, mut skip) = (Vec::new(), 0);
        for extent in common {
            let within = (skip..extent.bytes).step_by(step as usize).map(|at| extent.guest + at);
            samples.extend(within.map(|page| page..page + PAGE));
            skip = (skip + step * extent.bytes.saturating_sub(skip).div_ceil(step)).saturating_sub(extent.bytes);
        }
        let changed = self.changed(memory, &samples, below, layers)?;
        let changed_pages: u64 = changed.iter().map(|range| (range.end - range.start) / PAGE).sum();
        Ok(changed_pages * 2 > samples.len() as u64)
    }

    /// The pages of these ranges that are not in `below` with the same content. Adjacent pages are read together: a
    /// call for every page would take longer than everything else.
    fn changed(
        &self,
        memory: &File,
        ranges: &[Range<u64>],
        below: &MemoryMap,
        layers: &[File],
    ) -> io::Result<Vec<Range<u64>>> {
        let mut changed = Vec::new();
        let mut extents = below.extents().iter().peekable();
        let [mut now, mut before] = [vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]];
        for range in ranges {
            let mut from = range.start;
            while from < range.end {
                while extents.next_if(|extent| extent.guest + extent.bytes <= from).is_some() {}
                let Some(extent) = extents.peek().filter(|extent| extent.guest < range.end) else {
                    push(&mut changed, from..range.end);
                    break;
                };
                if extent.guest > from {
                    push(&mut changed, from..extent.guest);
                    from = extent.guest;
                    continue;
                }
                let end = range.end.min(extent.guest + extent.bytes).min(from + BUFFER_BYTES as u64);
                let length = (end - from) as usize;
                let layer = layers.get(extent.layer as usize).ok_or(io::ErrorKind::NotFound)?;
                layer.read_exact_at(&mut before[..length], extent.at + (from - extent.guest))?;
                memory.read_exact_at(&mut now[..length], self.address + from)?;
                for at in (0..length).step_by(PAGE as usize) {
                    let page = at..at + PAGE as usize;
                    if now[page.clone()] != before[page] {
                        push(&mut changed, from + at as u64..from + at as u64 + PAGE);
                    }
                }
                from = end;
            }
        }
        Ok(changed)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.release();
        // If it takes longer, `Machine::cont` waits for the locks.
        let _ = self.connection.set_read_timeout(Some(END_LIMIT));
        let _ = self.connection.read(&mut [0]);
    }
}

/// Everything over the base: what the machine has written, and what it has from the layers below.
fn whole(own: Vec<Range<u64>>, below: &MemoryMap) -> NewLayer {
    let ranges = closed(union(own, below.ranges()), CLOSE_BYTES);
    NewLayer::new(coalesced(ranges, MOST_EXTENTS / 2), &MemoryMap::default(), 0)
}

/// The ranges in blocks of at most [`BUFFER_BYTES`], in the same order.
fn blocks_of(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let (mut blocks, mut room) = (Vec::new(), 0);
    for range in ranges {
        let mut from = range.start;
        while from < range.end {
            if room == 0 {
                blocks.push(Vec::new());
                room = BUFFER_BYTES as u64;
            }
            let end = range.end.min(from + room);
            blocks.last_mut().expect("there is room in one").push(from..end);
            room -= end - from;
            from = end;
        }
    }
    blocks
}

/// The ranges as extents, one after the other in a file.
fn extents_of(ranges: &[Range<u64>], layer: u64) -> Vec<Extent> {
    let mut at = 0;
    let extent = |range: &Range<u64>| {
        let extent = Extent { guest: range.start, bytes: range.end - range.start, layer, at };
        at += extent.bytes;
        extent
    };
    ranges.iter().map(extent).collect()
}

/// The copy's pid, as this process sees it; then the address and length of its guest memory, and its thread table.
fn receive(connection: &UnixStream) -> io::Result<(i32, [u64; 3])> {
    let mut place = [0u8; 24];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length =
        recvmsg(connection, &mut [IoSliceMut::new(&mut place)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let pid = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_pid()),
        _ => None,
    });
    let refused = || io::Error::new(io::ErrorKind::ConnectionAborted, "the machine's process could not be copied");
    let pid = pid.filter(|_| length == place.len()).ok_or_else(refused)?;
    let word = |from: usize| u64::from_le_bytes(place[from..from + 8].try_into().expect("there are three words"));
    Ok((pid, [word(0), word(8), word(16)]))
}

fn parent(process: &OwnedFd) -> io::Result<i32> {
    let mut status = String::new();
    File::from(openat(process, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        .read_to_string(&mut status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|pid| pid.trim().parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
