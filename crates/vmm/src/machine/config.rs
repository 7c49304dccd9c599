//! What a machine is made of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::plug::Plug;
use crate::accelerator::Accelerator;
use crate::jail::{JailConfig, Layer, MachineDir};
use crate::memory::Memory;
use crate::thaw::Thaw;

/// The virtual hardware. A machine can only be restored on the hardware it was saved on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hardware {
    pub accelerator: Accelerator,
    /// A CPU model of QEMU's; virtualisation inside the guest is always switched off.
    pub cpu_model: String,
    pub vcpus: u32,
    pub memory_mib: u32,
}

/// The root disk: an overlay of the machine's own over layers that it shares with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The name of a qcow2 file in [`MachineDir::files`]; its backing name is `/layers/NAME`.
    pub overlay: String,
    pub backing: Vec<Layer>,
}

/// Where a machine's life begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// With its kernel. Memory goes to the file `memory` in [`MachineDir::files`], to be kept for later restores.
    Boot { kernel: PathBuf, initrd: PathBuf, command_line: String },
    /// With the memory and the device state that another machine left. The memory is shared and never written.
    /// With the process that it left, too, if that can be had: then device state is only what it could have been
    /// restored from.
    Restore { memory: Memory, state: PathBuf, thaw: Option<Thaw> },
}

impl Start {
    pub(super) fn thaw(&self) -> Option<&Thaw> {
        match self {
            Self::Boot { .. } => None,
            Self::Restore { thaw, .. } => thaw.as_ref(),
        }
    }
}

/// All that is needed to start a machine.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    pub dir: MachineDir,
    pub hardware: Hardware,
    pub start: Start,
    pub disk: Disk,
    pub jail: JailConfig,
    /// The QEMU binary.
    pub qemu: PathBuf,
    /// Unix time in milliseconds after which the keeper ends the machine, in force from its first moment.
    pub deadline_ms: Option<u64>,
    /// What was plugged in when the machine was saved. Only for [`Start::Restore`].
    pub plugs: Vec<Plug>,
}

impl MachineConfig {
    /// Where Debian puts QEMU.
    pub const QEMU: &'static str = "/usr/bin/qemu-system-x86_64";

    /// The file that a booted machine's memory is in, by its name in [`MachineDir::files`].
    pub const MEMORY: &'static str = "memory";
}
