//! A copy of a machine's process that stands still, so that its memory can be read while the machine runs on.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::map::{Extent, MemoryMap};
use super::pages::{PAGE, coalesced, push, union, written};
use crate::machine::{CLOSED_FD, INHERITED};
use crate::thaw::{self, Frame, SavedProcess, threads};

/// A copy takes milliseconds; on a host where it takes this long nothing works.
const COPY_LIMIT: Duration = Duration::from_secs(20);
/// How long one that has been let go is waited for.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Every extent is up to two mappings of a process that may have 65,530.
const MOST_EXTENTS: usize = 16_000;
/// A machine that stands on so many layers is saved on the base alone: opening files takes time, too.
const FOLD_LAYERS: usize = if super::MOST_LAYERS < 12 { super::MOST_LAYERS } else { 12 };
const BUFFER_BYTES: usize = 1 << 20;
/// So many threads do not fit into the table in which they write themselves down; see `preload/context.rs`.
const MOST_THREADS: usize = 64;

/// How long the machine stood still, and for what.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreezeTimes {
    pub stop: Duration,
    pub state: Duration,
    pub disk: Duration,
    pub copy: Duration,
    /// From before the stop until the guest ran again.
    pub pause: Duration,
}

/// The copy. It ends when this is dropped, or when whoever holds this dies. Until it has ended, what it has open is
/// locked, and the machine's next save would fail; so who drops this waits for it.
#[derive(Debug)]
pub struct Frozen {
    /// The copy ends when we say no more, and says no more when it has ended.
    connection: UnixStream,
    process: OwnedFd,
    address: u64,
    bytes: u64,
    /// Where the copy wrote down its threads; nowhere if it could not.
    table: u64,
    pub times: FreezeTimes,
}

/// What [`Frozen::save`] stored.
#[derive(Debug)]
pub struct SavedPages {
    pub map: MemoryMap,
    /// How many layers the map refers to.
    pub layers: usize,
    pub stored_bytes: u64,
}

/// A connection that will tell which process answers it.
pub(crate) fn connect(connection: tokio::net::UnixStream) -> io::Result<UnixStream> {
    let connection = connection.into_std()?;
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(COPY_LIMIT))?;
    set_socket_passcred(&connection, true)?;
    Ok(connection)
}

impl Frozen {
    /// Asks the machine's process for a copy of itself. Its guest must have been stopped.
    /// Its threads are written down if that is wanted, and there are not too many.
    pub(crate) fn take(mut connection: UnixStream, original: i32, bytes: u64, remember: bool) -> io::Result<Self> {
        let mut remembered = if remember { threads(original)? } else { Vec::new() };
        remembered.truncate(if remembered.len() < MOST_THREADS { MOST_THREADS } else { 0 });
        let words = std::iter::once(remembered.len() as u32).chain(remembered.iter().copied());
        let words: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        connection.write_all(&words)?;
        let (pid, [address, told, mut table]) = receive(&connection)?;
        if remembered.is_empty() || threads(original)? != remembered {
            // One that came or went meanwhile would be missing, or be one too many.
            table = 0;
        }
        let process = open(format!("/proc/{pid}"), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // The pid comes from the kernel, but could have been another's since; what is opened here cannot change.
        let sensible = address.is_multiple_of(PAGE) && address.checked_add(bytes).is_some();
        if parent(&process)? != original || told != bytes || !sensible {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer does not come from a copy of the machine",
            ));
        }
        Ok(Self { connection, process, address, bytes, table, times: FreezeTimes::default() })
    }

    /// Writes the pages in which the machine differs from `below`, a map over these layers that it was restored with
    /// or last saved as, and says where they are. If more layers or extents would come together than a machine can
    /// map, everything over the base is stored again, and the new layer stands on the base alone.
    pub fn save(&self, below: &MemoryMap, layers: &[File], out: &mut impl Write) -> io::Result<SavedPages> {
        let [pagemap, memory] = [self.file("pagemap")?, self.file("mem")?];
        let own = written(&pagemap, self.address, self.bytes)?;
        let changed = coalesced(self.changed(&memory, &own, below, layers)?, MOST_EXTENTS / 2);
        let map = below.under(&laid_out(&changed, layers.len() as u64));
        let fits = layers.len() < FOLD_LAYERS && map.extents().len() <= MOST_EXTENTS;
        if !fits {
            return self.store(&memory, union(own, below.ranges()), out);
        }
        let stored_bytes = changed.iter().map(|range| range.end - range.start).sum();
        self.copy_out(&memory, &changed, out)?;
        Ok(SavedPages { map, layers: layers.len() + 1, stored_bytes })
    }

    /// Writes the pages in which the machine differs from the base alone.
    pub fn save_whole(&self, below: &MemoryMap, out: &mut impl Write) -> io::Result<SavedPages> {
        let own = written(&self.file("pagemap")?, self.address, self.bytes)?;
        self.store(&self.file("mem")?, union(own, below.ranges()), out)
    }

    fn store(&self, memory: &File, ranges: Vec<Range<u64>>, out: &mut impl Write) -> io::Result<SavedPages> {
        let all = coalesced(ranges, MOST_EXTENTS / 2);
        let stored_bytes = all.iter().map(|range| range.end - range.start).sum();
        self.copy_out(memory, &all, out)?;
        Ok(SavedPages { map: MemoryMap::default().under(&laid_out(&all, 0)), layers: 1, stored_bytes })
    }

    /// Writes everything else that the process is made of to `out`, which follows the `pages` files that it was thawed
    /// from, if it is to stand on them, and says how it is made again. `layers` are files
    /// that were the machine's own and are layers now: their inodes, and their names among the layers.
    pub fn save_process(
        &self,
        pages: usize,
        layers: &[(u64, String)],
        out: &mut impl Write,
    ) -> io::Result<SavedProcess> {
        if self.table == 0 {
            return Err(io::Error::other("not all of its threads stood still"));
        }
        let frame = Frame {
            guest: self.address..self.address + self.bytes,
            table: self.table,
            pages,
            layers,
            inherited: INHERITED,
            closed: CLOSED_FD,
        };
        thaw::save(&self.process, &frame, out)
    }

    /// Lets the copy end, of which nothing is read any more. Whoever drops it later has less to wait for.
    pub fn let_go(&self) {
        // Otherwise it has ended by itself.
        let _ = self.connection.shutdown(Shutdown::Write);
    }

    fn file(&self, name: &str) -> io::Result<File> {
        Ok(File::from(openat(&self.process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The pages of these ranges that are not in `below` with the same content. As much is read at once as lies
    /// together: a call for every page would take longer than everything else.
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

    fn copy_out(&self, memory: &File, ranges: &[Range<u64>], out: &mut impl Write) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for range in ranges {
            let mut from = range.start;
            while from < range.end {
                let length = ((range.end - from) as usize).min(BUFFER_BYTES);
                memory.read_exact_at(&mut buffer[..length], self.address + from)?;
                out.write_all(&buffer[..length])?;
                from += length as u64;
            }
        }
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.let_go();
        // One that takes longer is waited for where its locks are in the way.
        let _ = self.connection.set_read_timeout(Some(END_LIMIT));
        let _ = self.connection.read(&mut [0]);
    }
}

/// The ranges one behind the other in a file.
fn laid_out(ranges: &[Range<u64>], layer: u64) -> Vec<Extent> {
    let mut at = 0;
    let extent = |range: &Range<u64>| {
        let extent = Extent { guest: range.start, bytes: range.end - range.start, layer, at };
        at += extent.bytes;
        extent
    };
    ranges.iter().map(extent).collect()
}

/// The copy's pid, as this process sees it, and where it has guest memory and its threads.
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
