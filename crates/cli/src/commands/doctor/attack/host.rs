//! What this kernel and this CPU lack.

use std::fs;

use super::trial::Trial;
use super::world::World;

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";
/// The version of Landlock that has all rights which the jail asks for.
const WANTED_LANDLOCK: i64 = 6;

/// The version of Landlock's interface, or 0 if the kernel does not enable it.
pub fn landlock_version() -> i64 {
    const ASK_FOR_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel takes no structure and answers with a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, ASK_FOR_VERSION) };
    version.max(0)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub async fn mitigations(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let Ok(list) = fs::read_dir(VULNERABILITIES) else {
        trial.skip("CPU vulnerabilities", format!("{VULNERABILITIES} does not exist"));
        return Ok(());
    };
    let mut names: Vec<_> = list.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    for name in names {
        let state = read(&format!("{VULNERABILITIES}/{name}")).unwrap_or_default();
        trial.record(!state.to_lowercase().contains("vulnerable"), name, state);
    }
    Ok(())
}

pub async fn smt(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    match read("/sys/devices/system/cpu/smt/active").as_deref() {
        Some("0") => trial.record(true, "sibling threads", "no core runs two threads"),
        Some(_) => trial.record(
            false,
            "sibling threads",
            "two sandboxes can share a core and its caches; boot with nosmt if tenants do not trust each other",
        ),
        None => trial.skip("sibling threads", "the kernel does not say whether SMT is active"),
    }
    Ok(())
}

pub async fn microcode(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let version = info.lines().find_map(|line| line.strip_prefix("microcode")?.split_once(':')).map(|(_, v)| v.trim());
    let in_virtual_machine = info.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    match (version, read(&format!("{VULNERABILITIES}/old_microcode"))) {
        (_, _) if in_virtual_machine => {
            trial.skip("microcode", "this host is a virtual machine, which does not see the CPU's microcode");
        }
        (Some(version), Some(state)) => {
            trial.record(!state.contains("Vulnerable"), format!("microcode {version}"), state);
        }
        (version, None) => trial.skip(
            "microcode",
            format!("version {}; Linux 6.16 or newer says whether it is old", version.unwrap_or("unknown")),
        ),
        (None, Some(_)) => trial.skip("microcode", "the CPU does not show its version"),
    }
    Ok(())
}

pub async fn landlock(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let version = landlock_version();
    let happened = match version {
        0 => "not enabled; boot with landlock in the lsm= list".to_owned(),
        version if version < WANTED_LANDLOCK => {
            format!("version {version}; the jail asks for rights up to version {WANTED_LANDLOCK}")
        }
        version => format!("version {version}"),
    };
    trial.record(version >= WANTED_LANDLOCK, "Landlock", happened);
    Ok(())
}

/// The layers that `sandling doctor` surveys: the jail needs user namespaces, and uses control groups.
pub async fn layers(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let layers = tokio::task::spawn_blocking(sandling_vmm::jail::survey).await?;
    for layer in layers.into_iter().filter(|layer| !layer.name.starts_with("landlock")) {
        let fix = layer.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
        trial.record(layer.available, layer.name, format!("{}{fix}", layer.detail));
    }
    Ok(())
}

/// Facts about the host, for the head of the report.
pub fn facts() -> Vec<(&'static str, String)> {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let of_cpu = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned()).unwrap_or_else(|| "unknown".to_owned())
    };
    let names = rustix::system::uname();
    let kvm = match sandling_vmm::accelerator::resolve(sandling_vmm::accelerator::AcceleratorChoice::Auto) {
        Ok(probe) => format!("{}: {}", probe.accelerator, probe.reason),
        Err(error) => error.to_string(),
    };
    vec![
        ("host", names.nodename().to_string_lossy().into_owned()),
        ("kernel", format!("{} {}", names.release().to_string_lossy(), names.version().to_string_lossy())),
        ("CPU", format!("{}, microcode {}", of_cpu("model name"), of_cpu("microcode"))),
        ("QEMU", sandling_vmm::machine::emulator_version().unwrap_or_else(|| "not installed".to_owned())),
        ("accelerator", kvm),
        ("user", if rustix::process::geteuid().is_root() { "root" } else { "unprivileged" }.to_owned()),
    ]
}
