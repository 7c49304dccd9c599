//! The jail of a machine: its user, and limits that follow from its size.

use std::path::Path;

use sandling_vmm::boundary::CgroupLimits;
use sandling_vmm::jail::{JailConfig, Limits, Requirement};
use sandling_vmm::machine::Hardware;

/// The first of the user ids that a privileged engine gives to its machines.
const FIRST_UID: u32 = 700_000;
/// Memory for QEMU itself on top of the guest's: translated code, buffers, its own text.
const EMULATOR_BYTES: u64 = 576 << 20;

/// A user id for the machine, derived from its directory's name.
pub(super) fn own_uid(dir: &Path) -> u32 {
    let name = dir.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
    let spread = name.iter().fold(0u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    FIRST_UID + spread % 65_536
}

/// The largest file that a machine of this size needs, volumes aside.
pub(crate) fn file_bytes(hardware: &Hardware, disk_mib: u32) -> u64 {
    let (memory_bytes, disk_bytes) = (u64::from(hardware.memory_mib) << 20, u64::from(disk_mib) << 20);
    memory_bytes.max(disk_bytes + disk_bytes / 8)
}

/// The jail of a machine of this size. The user id applies only if this process is privileged.
pub(super) fn jail(launcher: &Path, uid: u32, hardware: &Hardware, disk_mib: u32, volume_mib: u32) -> JailConfig {
    let memory_bytes = u64::from(hardware.memory_mib) << 20;
    let cgroup = CgroupLimits {
        memory_bytes: Some(memory_bytes + EMULATOR_BYTES),
        cpu_milli: Some(hardware.vcpus * 1000 + 250),
        tasks: Some(256),
    };
    let file_bytes = file_bytes(hardware, disk_mib).max(u64::from(volume_mib) << 20);
    JailConfig {
        launcher: launcher.to_owned(),
        uid: rustix::process::geteuid().is_root().then_some(uid),
        limits: Limits { file_bytes, cgroup, ..Limits::default() },
        user_namespace: Requirement::Required,
    }
}
