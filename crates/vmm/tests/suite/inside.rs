//! Attempts that must fail, made by a program that runs in the jail in QEMU's place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use sandling_vmm::jail::{Death, Inherit, Layer, Linkage, MachineDir, Program, launch};

use crate::fixture::*;

const REFUSED: Death = Death::Exited { code: 0 };
const SUCCEEDED: Death = Death::Exited { code: 7 };
const KILLED_BY_SECCOMP: Death = Death::Signalled { signal: 31 };

static PROBE: LazyLock<PathBuf> = LazyLock::new(|| compiled("probe"));

/// Makes one attempt in a jail like QEMU's; returns how the program ended and its output.
fn attempt(name: &str, argument: &str) -> (Death, String) {
    attempt_with(false, name, argument)
}

/// The same in a jail with or without `/dev/kvm`.
fn attempt_with(kvm: bool, name: &str, argument: &str) -> (Death, String) {
    let label: String =
        format!("{name}{argument}{kvm}").chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let dir = MachineDir::new(WORK.join(format!("inside-{label}")));
    dir.create().unwrap();
    let layer = dir.path().join("layer");
    fs::write(&layer, vec![b'm'; 4096]).unwrap();
    let program = Program {
        path: PROBE.clone(),
        arguments: vec![name.to_owned(), argument.to_owned()],
        data: vec!["/usr/share/seabios".into()],
        code: Vec::new(),
        linkage: Linkage::Dynamic,
        layers: vec![Layer { name: "one".to_owned(), path: layer.clone() }],
        memory: Some(layer.clone()),
        inherit: vec![Inherit::Listen { name: "socket".to_owned() }],
        kvm,
        preload: None,
        environment: Vec::new(),
    };
    let mut config = jail_config();
    config.limits.file_bytes = 1 << 20;
    let jailed = launch(&program, &dir, &config).unwrap();
    let supervisor = jailed.supervisor_pid();
    eventually(&label, Duration::from_secs(30), || !is_alive(supervisor));
    assert_eq!(fs::read(&layer).unwrap(), vec![b'm'; 4096], "the layer is as it was");
    let report = serde_json::from_slice(&fs::read(dir.exit_report()).unwrap()).unwrap();
    (report, fs::read_to_string(dir.program_log()).unwrap().trim().to_owned())
}

fn assert_refused(name: &str, argument: &str, error: &str) {
    let (report, said) = attempt(name, argument);
    assert_eq!(report, REFUSED, "{name} {argument}: {said}");
    assert!(said.contains(error), "{name} {argument}: {said}");
}

fn assert_killed(name: &str, argument: &str) {
    let (report, said) = attempt(name, argument);
    assert_eq!(report, KILLED_BY_SECCOMP, "{name} {argument}: {said}");
}

fn what_it_sees(name: &str, argument: &str) -> String {
    let (report, said) = attempt(name, argument);
    assert_eq!(report, SUCCEEDED, "{name} {argument}: {said}");
    said
}

#[test]
fn the_root_has_only_what_the_description_names() {
    assert_eq!(what_it_sees("list", "/layers"), "memory one");
    assert_eq!(what_it_sees("list", "/vm"), "");
    assert_refused("list", "/", "os error 13");
    assert_refused("list", "/dev", "os error 13");
}

#[test]
fn host_files_do_not_exist() {
    for path in ["/etc/passwd", "/etc/shadow", "/proc/self/status", "/proc/1/environ", "/sys/kernel/notes", "/dev/kvm"]
    {
        assert_refused("read", path, "os error 2");
    }
    for path in ["/root", "/home", "/proc", "/sys", "/tmp", "/run", "/var"] {
        let (report, said) = attempt("list", path);
        assert_eq!(report, REFUSED, "{path}: {said}");
    }
}

#[test]
fn only_its_own_directory_is_writable() {
    assert_eq!(what_it_sees("create", "/vm/own"), "created");
    for path in ["/new", "/usr/new", "/dev/new", "/layers/new", "/usr/share/seabios/new"] {
        let (report, said) = attempt("create", path);
        assert_eq!(report, REFUSED, "{path}: {said}");
    }
    for path in ["/layers/one", "/layers/memory"] {
        let (report, said) = attempt("write", path);
        assert_eq!(report, REFUSED, "{path}: {said}");
    }
}

#[test]
fn guest_memory_is_opened_for_writing_but_never_written() {
    assert_refused("memory-write", "", "os error 9");
    assert_refused("memory-share", "", "os error 13");
}

#[test]
fn it_sees_no_other_process() {
    assert_eq!(what_it_sees("pid", ""), "1");
    assert_eq!(what_it_sees("environment", ""), "[]");
    assert_eq!(what_it_sees("descriptors", ""), "0 1 2 3");
}

#[test]
fn no_socket_can_be_made() {
    for family in ["1", "2", "10", "16", "17", "40"] {
        assert_refused("socket", family, "os error 1)");
    }
}

#[test]
fn nothing_else_can_be_executed() {
    assert_killed("exec", "/vm/own");
    let probe = PROBE.to_str().unwrap();
    assert_killed("exec", probe);
    assert_refused("exec-descriptor", "", "os error 9");
    assert_refused("make-descriptor", "", "os error 9");
}

#[test]
fn only_plain_copies_and_a_limited_number_of_threads_can_be_started() {
    assert_refused("fork", "", "os error 1)");
    assert_refused("clone-user-namespace", "", "os error 1)");
    assert_refused("threads", "", "os error 11");
}

#[test]
fn limits_hold_and_cannot_be_raised() {
    assert_refused("big-file", &(2 << 20).to_string(), "os error 27");
    assert_refused("raise-limit", "", "os error 1)");
}

#[test]
fn hostile_calls_end_the_process() {
    let calls = [
        ("ptrace", 101),
        ("mount", 165),
        ("setuid", 105),
        ("unshare", 272),
        ("setns", 308),
        ("bpf", 321),
        ("keyctl", 250),
        ("init_module", 175),
        ("kexec_load", 246),
        ("pivot_root", 155),
        ("open_by_handle_at", 304),
        ("userfaultfd", 323),
    ];
    for (name, number) in calls {
        let (report, said) = attempt("call", &number.to_string());
        assert_eq!(report, KILLED_BY_SECCOMP, "{name}: {said}");
    }
}

#[test]
fn other_calls_are_refused() {
    for (name, number) in [("io_uring_setup", 425), ("kill", 62), ("process_vm_readv", 310), ("symlink", 88)] {
        let (report, said) = attempt("call", &number.to_string());
        assert_eq!((report, said.contains("os error 1)")), (REFUSED, true), "{name}: {said}");
    }
    assert_refused("call", "435", "os error 38");
}

/// `ioctl` requests that QEMU never makes: of terminals, TUN devices, file systems and host disks.
const FOREIGN_REQUESTS: [(&str, u64); 8] = [
    ("TIOCSTI", 0x5412),
    ("TIOCLINUX", 0x541c),
    ("TUNSETIFF", 0x4004_54ca),
    ("FS_IOC_SETFLAGS", 0x4008_6602),
    ("FICLONE", 0x4004_9409),
    ("BLKDISCARD", 0x1277),
    ("SG_IO", 0x2285),
    // The kernel takes the low half only.
    ("TIOCSTI with a high half", 0x1_0000_5412),
];

/// Requests that KVM has and QEMU does not need.
const OTHER_KVM_REQUESTS: [(&str, u64); 7] = [
    ("KVM_CREATE_DEVICE", 0xc00c_aee0),
    ("KVM_GET_NESTED_STATE", 0xc080_aebe),
    ("KVM_SET_NESTED_STATE", 0x4080_aebf),
    ("KVM_GET_STATS_FD", 0xaece),
    ("KVM_MEMORY_ENCRYPT_OP", 0xc008_aeba),
    ("KVM_XEN_HVM_CONFIG", 0x4038_ae7a),
    ("KVM_SET_GUEST_DEBUG", 0x4048_ae9b),
];

const KVM_RUN: u64 = 0xae80;
const KVM_GET_API_VERSION: u64 = 0xae00;

#[test]
fn without_kvm_no_ioctl_is_allowed() {
    let kvm = [("KVM_RUN", KVM_RUN), ("KVM_GET_API_VERSION", KVM_GET_API_VERSION)];
    for (name, request) in FOREIGN_REQUESTS.into_iter().chain(OTHER_KVM_REQUESTS).chain(kvm) {
        let (report, said) = attempt("ioctl", &request.to_string());
        assert_eq!((report, said.contains("os error 1)")), (REFUSED, true), "{name}: {said}");
    }
}

#[test]
fn with_kvm_only_the_requests_that_qemu_needs_are_allowed() {
    if !Path::new("/dev/kvm").exists() {
        eprintln!("SKIPPED: this host has no /dev/kvm");
        return;
    }
    for (name, request) in FOREIGN_REQUESTS.into_iter().chain(OTHER_KVM_REQUESTS) {
        let (report, said) = attempt_with(true, "ioctl", &request.to_string());
        assert_eq!((report, said.contains("os error 1)")), (REFUSED, true), "{name}: {said}");
    }
    // The filter lets these through to /dev/null, which does not know them.
    for request in [KVM_RUN, KVM_GET_API_VERSION] {
        let (report, said) = attempt_with(true, "ioctl", &request.to_string());
        assert_eq!((report, said.contains("os error 25)")), (REFUSED, true), "{request:#x}: {said}");
    }
}
