//! The machine's own settings: its limits, its names, its network.

use std::fs;
use std::path::Path;

use rustix::mount::mount_bind;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::RebootCommand;

use super::card;
use super::sequence::{BootError, During};
use crate::console;
use crate::identify::{BOOT_ID, HOSTNAME, MACHINE_ID};

/// A name until the host gives one.
const FIRST_HOSTNAME: &str = "sandling";

const OPEN_FILES: u64 = 65_536;

/// Sets what a first process has to set.
pub fn settle() -> Result<(), BootError> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // What is not there on every kernel is not worth a machine that does not start.
    let _ = rustix::system::reboot(RebootCommand::CadOff);
    let files = Rlimit { current: Some(OPEN_FILES), maximum: Some(OPEN_FILES) };
    let _ = setrlimit(Resource::Nofile, files);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None });
    if is_emulated() {
        // An emulator keeps translated code by its address: programs that are always at the same one start up to
        // four times faster. What address randomisation protects against ends with the sandbox.
        let _ = fs::write("/proc/sys/kernel/randomize_va_space", "0");
    }
    answer_first();
    card::bring_up().during(|| "bring the network up".to_owned())?;
    rustix::system::sethostname(FIRST_HOSTNAME.as_bytes()).during(|| "set the host name".to_owned())
}

/// The agent runs as soon as there is something for it, before whatever of the user's is running: somebody waits for
/// each of its answers, and it never computes for long. Nothing that it starts inherits that.
fn answer_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: a live structure, for this process.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority) };
    if set != 0 {
        console::say(&format!("the agent has no priority: {}", std::io::Error::last_os_error()));
    }
}

/// Whether the processor is QEMU's software emulation, which names itself where hypervisors do.
fn is_emulated() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}

/// Shows files of ours where programs look for the machine's names, so that a restored one can have others.
pub fn make_names_changeable(folder: &Path) -> Result<(), BootError> {
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
            console::say(&format!("{shown_as} cannot be changed: {error}"));
        }
    }
    Ok(())
}
