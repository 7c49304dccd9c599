//! A machine's process as files, so that another process can go on as it: translated code, threads and all.
//!
//! QEMU can load a machine's devices and memory, but it begins with nothing translated: under emulation that is most of
//! what a restored machine then does. So besides device state, a frozen copy of the process ([`crate::memory::Frozen`])
//! is surveyed ([`process`]) and written down as pages and a [`plan`]; `preload/thaw.rs`, started in a jail like any
//! QEMU, carries the plan out and is that process from then on.
//!
//! ```text
//!   QEMU, stopped ── copy ──▶ thaw.00 (memory of the process)    guest memory's layers   plan
//!                                      └───────────── mapped privately ──────┴────────────┘
//!                             a new jail: thaw ──▶ the same threads, at the same addresses
//! ```
//!
//! What is saved so holds for one boot of one host, and only for emulated machines; device state holds everywhere.
//! No library does this for a process that may not be looked at from inside: the jail has no `/proc`, and no calls
//! but QEMU's own.

mod plan;
mod process;

pub(crate) use plan::{PLAN, pages_name};
pub(crate) use process::{Frame, save, threads};

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use self::plan::Plan;
use crate::memory::{LIBRARY, place};

const PROGRAM: &[u8] = include_bytes!(env!("SANDLING_THAW"));

/// Counted up when something changes that both the saving and the thawing of a process rely on: the order of the
/// descriptors that a machine is born with, the names of layers.
const FORMAT: u32 = 1;

/// Where a machine's process comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thaw {
    /// The program, as [`place_program`] left it.
    pub program: PathBuf,
    pub plan: PathBuf,
    /// The lowest first.
    pub pages: Vec<PathBuf>,
}

/// What [`crate::memory::Frozen::save_process`] stored.
#[derive(Debug)]
pub struct SavedProcess {
    plan: Plan,
    guest: Range<u64>,
    closed: i32,
    pub stored_bytes: u64,
}

/// Puts the program into a directory, if it is not there, and says where it is.
pub fn place_program(directory: &Path) -> io::Result<PathBuf> {
    place(directory, "thaw", "", PROGRAM)
}

/// What a saved process depends on: this boot of this kernel, QEMU, and the two ends of the work.
pub fn fingerprint(qemu: &Path) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let qemu = fs::metadata(qemu)?;
    let modified = qemu.modified()?.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let ours = crate::memory::fingerprint(PROGRAM) ^ crate::memory::fingerprint(LIBRARY);
    Ok(format!("{}-{}-{modified:x}-{ours:x}-{FORMAT}", boot.trim(), qemu.len()))
}
