//! The plan of a cached process: the steps by which a new process becomes it, and what both ends must agree on.
//!
//! `src/process_cache` writes a plan, and `resume.rs` carries it out. Both include this file, as do the preloaded
//! library and the build script, so the format exists once. There is no standard library here and no allocation.
//!
//! A plan is a sequence of little-endian `u64` words: [`MAGIC`], [`VERSION`], then the steps. A step is its tag and
//! five numbers; a step that names a file is followed by the path, as [`path_words`] lays it out.

#![allow(dead_code)] // each program that includes this file uses a part of it

use core::ffi::CStr;
use core::iter;
use core::ops::Range;

const MAGIC: u64 = u64::from_le_bytes(*b"sandplan");

/// Raised when a step, the thread table, the names of layers or the inherited descriptors change their meaning.
pub const VERSION: u64 = 2;

/// Where the plan is in the jail, and what its layer is called.
pub const PLAN_PATH: &CStr = c"/layers/process.plan";
pub const PLAN_NAME: &str = "process.plan";
/// How the names of the layers with the process's pages begin; two digits follow.
pub const PAGES_PREFIX: &str = "process.";

/// The kernel and QEMU put nothing here: it is below every program that can be moved. The program that resumes a
/// process is linked to the first of these addresses, maps the plan at the second, and passes the vDSO through the
/// third.
pub const RESERVED: Range<u64> = 0x1000_0000..0x4000_0000;
pub const PROGRAM_ADDRESS: u64 = RESERVED.start;
pub const PLAN_ADDRESS: u64 = 0x2000_0000;
pub const SCRATCH_ADDRESS: u64 = 0x3000_0000;
pub const MOST_PLAN_BYTES: u64 = 0x0400_0000;

/// The machine's user and group in its user namespace, if it has a user of its own there. The caller is 0 then.
pub const OWN_USER: u32 = 1;

/// A process with more threads does not fit into the table, and is not cached.
pub const MOST_THREADS: usize = 64;
/// A plan cannot map more files at once: the process's pages, guest memory and its layers.
pub const MOST_FILES: usize = 80;

/// One step of a plan. `P` is a path: a string when a plan is written, a C string when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<P> {
    /// Moves a part of the vDSO, which begins `offset` bytes after its code (modulo 2^64).
    MoveVdso { offset: u64, bytes: u64, to: u64 },
    /// Moves a mapping to another address.
    Move { from: u64, bytes: u64, to: u64 },
    /// Opens the next file to be mapped. Files are counted from 1.
    OpenFile { path: P },
    /// Maps a part of a file privately over whatever is there; file 0 is zeros.
    Map { address: u64, bytes: u64, protection: u64, file: u64, at: u64 },
    /// Closes the files that were opened to be mapped.
    CloseFiles { count: u64 },
    /// Sets the status flags of an inherited descriptor.
    SetFlags { fd: u64, flags: u64 },
    /// Makes an eventfd, under this number.
    EventFd { fd: u64, count: u64, flags: u64 },
    /// Makes a signalfd.
    SignalFd { fd: u64, mask: u64, flags: u64 },
    /// Makes an epoll descriptor that watches nothing.
    Epoll { fd: u64, flags: u64 },
    /// Opens a file.
    OpenDescriptor { fd: u64, flags: u64, path: P },
    /// Duplicates an inherited descriptor.
    Duplicate { from: u64, fd: u64 },
    /// Starts the threads of the `Table` at this address. Always the last step.
    StartThreads { table: u64 },
}

impl<P> Step<P> {
    fn into_parts(self) -> ([u64; 6], Option<P>) {
        match self {
            Self::MoveVdso { offset, bytes, to } => ([1, offset, bytes, to, 0, 0], None),
            Self::Move { from, bytes, to } => ([2, from, bytes, to, 0, 0], None),
            Self::OpenFile { path } => ([3, 0, 0, 0, 0, 0], Some(path)),
            Self::Map { address, bytes, protection, file, at } => ([4, address, bytes, protection, file, at], None),
            Self::CloseFiles { count } => ([5, count, 0, 0, 0, 0], None),
            Self::SetFlags { fd, flags } => ([6, fd, flags, 0, 0, 0], None),
            Self::EventFd { fd, count, flags } => ([7, fd, count, flags, 0, 0], None),
            Self::SignalFd { fd, mask, flags } => ([8, fd, mask, flags, 0, 0], None),
            Self::Epoll { fd, flags } => ([9, fd, flags, 0, 0, 0], None),
            Self::OpenDescriptor { fd, flags, path } => ([10, fd, flags, 0, 0, 0], Some(path)),
            Self::Duplicate { from, fd } => ([11, from, fd, 0, 0, 0], None),
            Self::StartThreads { table } => ([12, table, 0, 0, 0, 0], None),
        }
    }

    /// `path` is called if the step has one.
    fn from_parts([tag, a, b, c, d, e]: [u64; 6], path: impl FnOnce() -> Option<P>) -> Option<Self> {
        Some(match tag {
            1 => Self::MoveVdso { offset: a, bytes: b, to: c },
            2 => Self::Move { from: a, bytes: b, to: c },
            3 => Self::OpenFile { path: path()? },
            4 => Self::Map { address: a, bytes: b, protection: c, file: d, at: e },
            5 => Self::CloseFiles { count: a },
            6 => Self::SetFlags { fd: a, flags: b },
            7 => Self::EventFd { fd: a, count: b, flags: c },
            8 => Self::SignalFd { fd: a, mask: b, flags: c },
            9 => Self::Epoll { fd: a, flags: b },
            10 => Self::OpenDescriptor { fd: a, flags: b, path: path()? },
            11 => Self::Duplicate { from: a, fd: b },
            12 => Self::StartThreads { table: a },
            _ => return None,
        })
    }
}

/// The words that a plan begins with.
pub fn header() -> [u64; 2] {
    [MAGIC, VERSION]
}

/// Writes a step, word by word.
pub fn write<P: AsRef<str>>(step: Step<P>, mut word: impl FnMut(u64)) {
    let (numbers, path) = step.into_parts();
    numbers.into_iter().for_each(&mut word);
    if let Some(path) = path {
        path_words(path.as_ref(), word);
    }
}

/// The number of words that follow, then the bytes of the path, with a NUL, filled up to whole words.
fn path_words(path: &str, mut word: impl FnMut(u64)) {
    let words = path.len() / 8 + 1;
    word(words as u64);
    let mut bytes = path.bytes().chain(iter::repeat(0));
    for _ in 0..words {
        word((0..8).fold(0, |sum, shift| sum | u64::from(bytes.next().unwrap_or(0)) << (8 * shift)));
    }
}

/// A plan that is read from the front to the back.
pub struct Reader<'a>(&'a [u64]);

impl<'a> Reader<'a> {
    /// `None` if this is no plan, or one of another version.
    pub fn new(words: &'a [u64]) -> Option<Self> {
        let (first, rest) = words.split_first_chunk::<2>()?;
        (first[0] == MAGIC && first[1] == VERSION).then_some(Self(rest))
    }

    /// The next step; `None` if the plan ends here, or what follows is no step.
    pub fn step(&mut self) -> Option<Step<&'a CStr>> {
        let (numbers, rest) = self.0.split_first_chunk::<6>()?;
        self.0 = rest;
        Step::from_parts(*numbers, || self.path())
    }

    fn path(&mut self) -> Option<&'a CStr> {
        let (words, rest) = self.0.split_first()?;
        let (path, rest) = rest.split_at_checked(usize::try_from(*words).ok()?)?;
        self.0 = rest;
        // SAFETY: the same memory, seen as bytes, of which every value is valid.
        let bytes = unsafe { core::slice::from_raw_parts(path.as_ptr().cast::<u8>(), path.len() * 8) };
        CStr::from_bytes_until_nul(bytes).ok()
    }
}
