//! The machine's settings: limits, names and network.

use std::fs;
use std::path::Path;

use rustix::mount::mount_bind;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::RebootCommand;

use super::card;
use super::sequence::{BootError, During};
use crate::console;
use crate::identity::{BOOT_ID, HOSTNAME, MACHINE_ID};

/// The host name until the host sends one.
const FIRST_HOSTNAME: &str = "sandling";

const OPEN_FILES: u64 = 65_536;

/// Sets what PID 1 has to set.
pub fn configure() -> Result<(), BootError> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Best effort: not every kernel supports these, and the machine works without them.
    let _ = rustix::system::reboot(RebootCommand::CadOff);
    let files = Rlimit { current: Some(OPEN_FILES), maximum: Some(OPEN_FILES) };
    let _ = setrlimit(Resource::Nofile, files);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None });
    if is_emulated() {
        // An emulator caches translated code by its address, so programs that are always loaded at the same address
        // start up to four times faster. An attack that address randomisation would prevent stays in the sandbox.
        let _ = fs::write("/proc/sys/kernel/randomize_va_space", "0");
    }
    raise_priority();
    card::bring_up().during(|| "bring the network up".to_owned())?;
    rustix::system::sethostname(FIRST_HOSTNAME.as_bytes()).during(|| "set the host name".to_owned())
}

/// Gives the agent precedence over user processes, because a caller waits for each of its answers and it never computes
/// for long. Its children do not inherit the priority.
fn raise_priority() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: a live structure, for this process.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority) };
    if set != 0 {
        console::log(&format!("cannot raise the agent's priority: {}", std::io::Error::last_os_error()));
    }
}

/// Whether QEMU emulates the processor in software; QEMU says so in the hypervisor's CPUID leaf.
fn is_emulated() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}

/// Mounts writable files where programs look for the machine's names, so that a restored machine can get new ones.
pub fn mount_names(folder: &Path) -> Result<(), BootError> {
    fs::create_dir_all(folder).during(|| format!("make {}", folder.display()))?;
    let random = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let boot_id = random("/proc/sys/kernel/random/boot_id");
    let machine_id = random("/proc/sys/kernel/random/uuid").replace('-', "");
    let names = [
        (MACHINE_ID, "/etc/machine-id", machine_id),
        (BOOT_ID, "/proc/sys/kernel/random/boot_id", boot_id),
        (HOSTNAME, "/etc/hostname", format!("{FIRST_HOSTNAME}\n")),
    ];
    for (name, shown_as, first) in names {
        let file = folder.join(name);
        fs::write(&file, first).during(|| format!("write {}", file.display()))?;
        if !Path::new(shown_as).exists() {
            let _ = fs::write(shown_as, "");
        }
        if let Err(error) = mount_bind(&file, shown_as) {
            console::log(&format!("cannot make {shown_as} changeable: {error}"));
        }
    }
    Ok(())
}
