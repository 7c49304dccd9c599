//! What a host needs to resume cached processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::inherited::STATE_FD;
use crate::jail::{FIRST_INHERITED, Inherit, Layer, Linkage, Program};
use crate::memory::{LIBRARY, fingerprint, place};
use crate::plan::{PLAN_NAME, VERSION};

use super::pages_name;

const PROGRAM: &[u8] = include_bytes!(env!("SANDLING_RESUME"));

/// Where the jail has the program that becomes a cached process.
const PROGRAM_PLACE: &str = "/cached-qemu";

/// The length of a boot id, with which a fingerprint begins.
const BOOT_ID_BYTES: usize = 36;

/// The program that resumes cached processes on this host, and the fingerprint of all that they depend on.
#[derive(Debug, Clone)]
pub struct ProcessCache {
    program: PathBuf,
    fingerprint: String,
}

impl ProcessCache {
    /// Puts the program into `directory` if it is not there yet. `qemu` is the binary whose processes are cached.
    pub fn open(directory: &Path, qemu: &Path) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let qemu = fs::metadata(qemu)?;
        let modified = qemu.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let ours = fingerprint(PROGRAM) ^ fingerprint(LIBRARY);
        let fingerprint = format!("{}-{}-{modified:x}-{ours:x}-{VERSION}", boot.trim(), qemu.len());
        Ok(Self { program: place(directory, "resume", "", PROGRAM)?, fingerprint })
    }

    /// Identifies this boot of this kernel, QEMU's binary, and the two programs of ours that capture and resume a
    /// process. A cached process with another fingerprint must not be resumed.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether a process with this fingerprint was captured since the host booted. Machines may still use its files,
    /// even if new ones cannot be resumed from it.
    pub fn is_of_this_boot(&self, fingerprint: &str) -> bool {
        fingerprint.get(..BOOT_ID_BYTES) == self.fingerprint.get(..BOOT_ID_BYTES)
    }

    /// A cached process by its files: the plan, and its pages, the lowest layer first.
    pub fn process(&self, plan: PathBuf, pages: Vec<PathBuf>) -> CachedProcess {
        CachedProcess { program: self.program.clone(), plan, pages }
    }
}

/// A process that a machine can be resumed from, instead of starting QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedProcess {
    program: PathBuf,
    plan: PathBuf,
    pages: Vec<PathBuf>,
}

impl CachedProcess {
    pub fn pages(&self) -> &[PathBuf] {
        &self.pages
    }

    /// Replaces QEMU by this process in the description of a jail. The process brings its code, its arguments and its
    /// environment along, and it has loaded its device state already.
    pub(crate) fn instead_of(&self, qemu: Program) -> Program {
        let Program { mut layers, mut inherit, memory, kvm, .. } = qemu;
        layers.push(Layer { name: PLAN_NAME.to_owned(), path: self.plan.clone() });
        if let Some(state) = inherit.get_mut((STATE_FD - FIRST_INHERITED) as usize) {
            *state = Inherit::Closed;
        }
        let pages = self.pages.iter().enumerate();
        Program {
            path: self.program.clone(),
            linkage: Linkage::Static { place: PROGRAM_PLACE.into() },
            arguments: Vec::new(),
            data: Vec::new(),
            layers,
            code: pages.map(|(number, path)| Layer { name: pages_name(number), path: path.clone() }).collect(),
            memory,
            inherit,
            kvm,
            preload: None,
            environment: Vec::new(),
        }
    }
}
