//! The jail of a machine, with limits that follow from its size.

use std::path::Path;

use sandling_vmm::boundary::{CgroupLimits, DiskRate};
use sandling_vmm::jail::{JailConfig, Limits, Requirement};
use sandling_vmm::machine::Hardware;

/// Memory for QEMU itself on top of the guest's: translated code, buffers, its own text.
const EMULATOR_BYTES: u64 = 576 << 20;

/// The largest file that a machine of this size needs, volumes aside.
pub(crate) fn file_bytes(hardware: &Hardware, disk_mib: u32) -> u64 {
    let (memory_bytes, disk_bytes) = (u64::from(hardware.memory_mib) << 20, u64::from(disk_mib) << 20);
    memory_bytes.max(disk_bytes + disk_bytes / 8)
}

/// The jail of a machine of this size.
pub(super) fn jail(launcher: &Path, hardware: &Hardware, disk_mib: u32, volume_mib: u32, disk: DiskRate) -> JailConfig {
    let memory_bytes = u64::from(hardware.memory_mib) << 20;
    let cgroup = CgroupLimits {
        memory_bytes: Some(memory_bytes + EMULATOR_BYTES),
        // An idle guest can be swapped out as a whole.
        swap_bytes: Some(memory_bytes),
        cpu_milli: Some(hardware.vcpus * 1000 + 250),
        tasks: Some(256),
        disk,
    };
    let file_bytes = file_bytes(hardware, disk_mib).max(u64::from(volume_mib) << 20);
    JailConfig {
        launcher: launcher.to_owned(),
        limits: Limits { file_bytes, cgroup, ..Limits::default() },
        user_namespace: Requirement::Required,
    }
}
