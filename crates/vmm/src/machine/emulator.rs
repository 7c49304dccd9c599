//! The QEMU that is installed on this host.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::config::MachineConfig;
use crate::accelerator::Accelerator;

/// Raised when [`super::command_line`] changes so that machines that were saved earlier cannot be restored.
pub const DEVICE_MODEL: u32 = 2;

/// The first line of `qemu --version`; `None` if QEMU is not installed. Takes some 20 ms.
pub fn emulator_version() -> Option<String> {
    let output = Command::new(MachineConfig::QEMU).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Distinguishes hosts that cannot restore each other's machines, without starting QEMU: by QEMU's binary and, if the
/// guest's processor is the host's own, by that processor.
pub fn emulator_fingerprint(accelerator: Accelerator) -> Option<String> {
    let binary = Path::new(MachineConfig::QEMU).metadata().ok()?;
    let binary = format!("{}-{}", binary.len(), binary.mtime());
    match accelerator {
        Accelerator::Tcg => Some(binary),
        Accelerator::Kvm => Some(format!("{binary} {}", processor(&std::fs::read_to_string("/proc/cpuinfo").ok()?))),
    }
}

/// The parts of `/proc/cpuinfo` that a guest can see and that do not vary, as the clock rate does.
fn processor(cpuinfo: &str) -> String {
    let first = cpuinfo.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let seen = first.filter(|(key, _)| {
        ["vendor_id", "cpu family", "model", "model name", "stepping", "flags"].contains(&key.trim())
    });
    seen.map(|(_, value)| value.trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: EPYC\n\
        stepping\t: 1\ncpu MHz\t\t: 2445.404\nflags\t\t: fpu sse2 avx2\n\nprocessor\t: 1\nvendor_id\t: other\n";

    #[test]
    fn a_processor_is_identified_by_what_guests_see_and_not_by_its_clock_rate() {
        assert_eq!(processor(ONE), "AuthenticAMD 25 1 EPYC 1 fpu sse2 avx2");
        assert_eq!(processor(ONE), processor(&ONE.replace("2445.404", "3012.1")));
        assert_ne!(processor(ONE), processor(&ONE.replace("avx2", "avx2 avx512f")));
    }

    #[test]
    fn the_hosts_processor_matters_under_kvm_only() {
        if let Some(binary) = emulator_fingerprint(Accelerator::Tcg) {
            let kvm = emulator_fingerprint(Accelerator::Kvm).unwrap();
            assert!(kvm.starts_with(&binary) && kvm.len() > binary.len(), "{kvm}");
        }
    }
}
