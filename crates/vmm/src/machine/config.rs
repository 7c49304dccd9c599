//! The description of a machine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::plug::Plug;
use crate::accelerator::Accelerator;
use crate::jail::{JailConfig, Layer, MachineDir};
use crate::memory::Memory;
use crate::process_cache::CachedProcess;

/// The virtual hardware. A machine can only be restored on the hardware it was saved on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hardware {
    pub accelerator: Accelerator,
    /// A CPU model of QEMU's; nested virtualization is always off.
    pub cpu_model: String,
    pub vcpus: u32,
    pub memory_mib: u32,
}

/// The root disk: the machine's own overlay over layers that it shares with other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The name of a qcow2 file in [`MachineDir::files`]; its backing name is `/layers/NAME`.
    pub overlay: String,
    pub backing: Vec<Layer>,
}

/// What a machine starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// A kernel. Memory goes to the file `memory` in [`MachineDir::files`], from which machines can be restored later.
    /// With `over`, memory is private instead, and its pages are those of `over` until the kernel writes them. Like a
    /// restored machine, such a machine can be frozen.
    Boot { kernel: PathBuf, initrd: PathBuf, command_line: String, over: Option<Memory> },
    /// The memory and the device state of another machine. The memory is shared and never written. With a cached
    /// process, the machine resumes as that process, and device state is not loaded.
    Restore { memory: Memory, state: PathBuf, cached: Option<CachedProcess> },
}

impl Start {
    pub(super) fn cached(&self) -> Option<&CachedProcess> {
        match self {
            Self::Boot { .. } => None,
            Self::Restore { cached, .. } => cached.as_ref(),
        }
    }

    /// The saved memory below the machine's own.
    pub(super) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Boot { over, .. } => over.as_ref(),
            Self::Restore { memory, .. } => Some(memory),
        }
    }
}

/// Everything that is needed to start a machine.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    pub dir: MachineDir,
    pub hardware: Hardware,
    pub start: Start,
    pub disk: Disk,
    pub jail: JailConfig,
    /// The QEMU binary.
    pub qemu: PathBuf,
    /// Unix time in milliseconds after which the supervisor ends the machine, in force from its first moment.
    pub deadline_ms: Option<u64>,
    /// The disks that were plugged in when the machine was saved. Only for [`Start::Restore`].
    pub plugs: Vec<Plug>,
}

impl MachineConfig {
    /// Where Debian puts QEMU.
    pub const QEMU: &'static str = "/usr/bin/qemu-system-x86_64";

    /// The name in [`MachineDir::files`] of the file with a booted machine's memory.
    pub const MEMORY: &'static str = "memory";
}
