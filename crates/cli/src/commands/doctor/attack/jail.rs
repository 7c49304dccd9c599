//! Attacks from inside the jail: a program that runs in QEMU's place, behind the same walls and filters.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use sandling_vmm::jail::{Death, Inherit, JailConfig, Layer, Linkage, MachineDir, Program, launch};

use super::probe;
use super::trial::Trial;
use super::world::World;

const SIGSYS: i32 = 31;
const MEMORY: &str = "/layers/memory";
const END_LIMIT: Duration = Duration::from_secs(20);

/// Calls that no emulator makes. The filter ends a process that makes one.
#[rustfmt::skip]
const HOSTILE: &[(&str, i64)] = &[
    ("ptrace", libc::SYS_ptrace), ("mount", libc::SYS_mount), ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root), ("chroot", libc::SYS_chroot), ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree), ("fsopen", libc::SYS_fsopen), ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns), ("bpf", libc::SYS_bpf), ("perf_event_open", libc::SYS_perf_event_open),
    ("keyctl", libc::SYS_keyctl), ("add_key", libc::SYS_add_key), ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module), ("kexec_load", libc::SYS_kexec_load), ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon), ("iopl", libc::SYS_iopl), ("ioperm", libc::SYS_ioperm),
    ("userfaultfd", libc::SYS_userfaultfd), ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("mknod", libc::SYS_mknod), ("settimeofday", libc::SYS_settimeofday), ("syslog", libc::SYS_syslog),
    ("setuid", libc::SYS_setuid), ("setresuid", libc::SYS_setresuid), ("setgroups", libc::SYS_setgroups),
    ("capset", libc::SYS_capset), ("personality", libc::SYS_personality), ("pidfd_getfd", libc::SYS_pidfd_getfd),
];

/// Other calls outside the allow-list. The kernel itself would not answer these with EPERM, so EPERM comes from the
/// filter.
#[rustfmt::skip]
const NOT_ALLOWED: &[(&str, i64)] = &[
    ("io_uring_setup", libc::SYS_io_uring_setup), ("process_vm_readv", libc::SYS_process_vm_readv),
    ("kill", libc::SYS_kill), ("symlink", libc::SYS_symlink), ("link", libc::SYS_link), ("rename", libc::SYS_rename),
    ("mkdir", libc::SYS_mkdir), ("chmod", libc::SYS_chmod), ("inotify_init1", libc::SYS_inotify_init1),
    ("msgget", libc::SYS_msgget), ("connect", libc::SYS_connect), ("bind", libc::SYS_bind),
    ("splice", libc::SYS_splice), ("setxattr", libc::SYS_setxattr), ("pidfd_open", libc::SYS_pidfd_open),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset), ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("mbind", libc::SYS_mbind), ("fork", libc::SYS_fork), ("vfork", libc::SYS_vfork),
];

/// Requests of terminals, network devices, disks and KVM. Without `/dev/kvm` the filter refuses every request; the kernel
/// itself would answer that the probe's input is no such device.
const REQUESTS: &[(&str, u64)] = &[
    ("TIOCSTI", 0x5412),
    ("TIOCLINUX", 0x541c),
    ("TUNSETIFF", 0x4004_54ca),
    ("FS_IOC_SETFLAGS", 0x4008_6602),
    ("BLKDISCARD", 0x1277),
    ("SG_IO", 0x2285),
    ("KVM_CREATE_DEVICE", 0xc00c_aee0),
    ("KVM_SET_NESTED_STATE", 0x4080_aebf),
];

pub async fn hostile_calls(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (name, number) in HOSTILE {
        let ran = world.probe(&[format!("call={number}")]).await?;
        let killed = ran.death == Death::Signalled { signal: SIGSYS };
        let happened = if killed { "seccomp ended the process".to_owned() } else { ran.brief() };
        trial.record(killed, *name, happened);
    }
    Ok(())
}

pub async fn other_calls(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (name, number) in NOT_ALLOWED {
        expect_error(world, trial, name, &format!("call={number}"), &[libc::EPERM]).await?;
    }
    expect_error(world, trial, "clone3", &format!("call={}", libc::SYS_clone3), &[libc::ENOSYS]).await?;
    let new_user_namespace = format!("clone={}", libc::CLONE_NEWUSER | libc::SIGCHLD);
    expect_error(world, trial, "clone into a new user namespace", &new_user_namespace, &[libc::EPERM]).await?;
    expect_error(world, trial, "raising a resource limit", "raise-limit", &[libc::EPERM]).await
}

pub async fn ioctl(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (name, request) in REQUESTS {
        expect_error(world, trial, name, &format!("ioctl={request}"), &[libc::EPERM]).await?;
    }
    Ok(())
}

pub async fn sockets(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let families = [("unix", 1), ("IPv4", 2), ("IPv6", 10), ("netlink", 16), ("packet", 17), ("vsock", 40)];
    for (name, family) in families {
        expect_error(world, trial, &format!("a {name} socket"), &format!("socket={family}"), &[libc::EPERM]).await?;
    }
    Ok(())
}

pub async fn exec(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for path in ["/vm/own", &world.probe_path().display().to_string()] {
        let ran = world.probe(&[format!("exec={path}")]).await?;
        let killed = ran.death == Death::Signalled { signal: SIGSYS };
        let happened = if killed { "seccomp ended the process".to_owned() } else { ran.brief() };
        trial.record(killed, format!("executing {path}"), happened);
    }
    let what = "executing its own descriptor again";
    expect_error(world, trial, what, "exec-descriptor", &[libc::EBADF, libc::EPERM]).await
}

/// Landlock lets the kernel tell a program about a file that it may not open, so `stat` shows what is mounted. The
/// directories above the probe's own program exist in its jail, and are empty except for it.
pub async fn host_files(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let own_home = world.home().root().display().to_string();
    let paths =
        ["/etc/passwd", "/etc/shadow", "/proc/self", "/proc/1", "/sys/kernel", "/root", "/home", "/tmp", "/run"];
    let paths = paths.into_iter().chain(["/var", "/dev/mem", "/dev/sda", own_home.as_str()]);
    for path in paths.filter(|path| !world.probe_path().starts_with(path)) {
        expect_error(world, trial, path, &format!("stat={path}"), &[libc::ENOENT]).await?;
    }
    Ok(())
}

pub async fn writes(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let control = world.probe(&["create=/vm/own".to_owned()]).await?;
    anyhow::ensure!(control.line("create=/vm/own").is_some_and(|line| line.starts_with("ok")), "{}", control.brief());
    let refused = [libc::EROFS, libc::EACCES, libc::EPERM, libc::ENOENT];
    for path in ["/new", "/usr/new", "/dev/new", "/layers/new"] {
        expect_error(world, trial, &format!("creating {path}"), &format!("create={path}"), &refused).await?;
    }
    for path in ["/layers/one", MEMORY] {
        expect_error(world, trial, &format!("writing to {path}"), &format!("write={path}"), &refused).await?;
    }
    Ok(())
}

/// What only Landlock refuses: the directories exist and everybody may read them.
pub async fn landlock(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    if super::host::landlock_version() == 0 {
        trial.skip("reading directories outside the rules", "this kernel does not enable Landlock");
        return Ok(());
    }
    for path in ["/", "/dev"] {
        expect_error(world, trial, &format!("listing {path}"), &format!("list={path}"), &[libc::EACCES]).await?;
    }
    Ok(())
}

pub async fn template_memory(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (what, how) in [("writing to it", "memory-write"), ("mapping it shared and writable", "memory-share")] {
        let refused = [libc::EBADF, libc::EACCES, libc::EPERM, libc::EROFS];
        expect_error(world, trial, what, &format!("{how}={MEMORY}"), &refused).await?;
    }
    Ok(())
}

pub async fn leaks(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (what, attempt, expected) in [
        ("open descriptors: standard streams and one inherited socket", "descriptors", "ok 0 1 2 3"),
        ("environment variables: none", "environment", "ok []"),
        ("its own process is the first in its namespace", "processes", "ok own pid 1"),
    ] {
        let ran = world.probe(&[attempt.to_owned()]).await?;
        let seen = ran.line(attempt).map(str::to_owned).unwrap_or_else(|| ran.brief());
        trial.record(seen == expected, what, seen.trim_start_matches("ok ").to_owned());
    }
    Ok(())
}

pub async fn threads(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    expect_error(world, trial, "starting 2,000 threads", "threads", &[libc::EAGAIN]).await
}

async fn expect_error(
    world: &World,
    trial: &mut Trial,
    what: &str,
    attempt: &str,
    errors: &[i32],
) -> anyhow::Result<()> {
    let ran = world.probe(&[attempt.to_owned()]).await?;
    let error = ran.line(attempt).and_then(|line| line.strip_prefix("error ")?.parse::<i32>().ok());
    trial.record(error.is_some_and(|error| errors.contains(&error)), what, ran.brief());
    Ok(())
}

/// How the probe ended, and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub death: Death,
    pub output: String,
}

impl Ran {
    /// The result of one attempt.
    pub fn line(&self, attempt: &str) -> Option<&str> {
        self.output.lines().find_map(|line| line.strip_prefix(attempt)?.strip_prefix(' '))
    }

    /// The last result, or how the probe ended.
    pub fn brief(&self) -> String {
        let Some((_, result)) = self.output.trim().lines().next_back().and_then(|line| line.split_once(' ')) else {
            return self.death.to_string().replace("QEMU", "the probe");
        };
        match result.strip_prefix("error ").and_then(|number| number.parse().ok()) {
            Some(number) => std::io::Error::from_raw_os_error(number).to_string(),
            None => format!("it worked: {}", result.trim_start_matches("ok ")),
        }
    }
}

/// Runs the probe in a jail of its own.
pub fn run_probe(work: &Path, program: &Path, attempts: &[String]) -> anyhow::Result<Ran> {
    let dir = MachineDir::new(work);
    dir.create().context("cannot create the probe's directory")?;
    let layer: PathBuf = dir.path().join("layer");
    fs::write(&layer, vec![b'm'; 4096])?;
    let description = Program {
        path: program.to_owned(),
        arguments: [&[probe::ARGUMENT.to_owned()], attempts].concat(),
        data: Vec::new(),
        code: Vec::new(),
        linkage: Linkage::Dynamic,
        layers: vec![Layer { name: "one".to_owned(), path: layer.clone() }],
        memory: Some(layer),
        inherit: vec![Inherit::Listen { name: "socket".to_owned() }],
        kvm: false,
        preload: None,
        environment: Vec::new(),
    };
    let jailed = launch(&description, &dir, &JailConfig::new()?)?;
    let given_up = Instant::now() + END_LIMIT;
    let death = loop {
        if let Ok(report) = fs::read(dir.exit_report()) {
            break serde_json::from_slice(&report).context("the supervisor's report is unreadable")?;
        }
        anyhow::ensure!(Instant::now() < given_up, "the probe did not end within {} s", END_LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    };
    drop(jailed);
    let output = fs::read_to_string(dir.program_log()).unwrap_or_default();
    fs::remove_dir_all(work).context("cannot remove the probe's directory")?;
    Ok(Ran { death, output })
}
