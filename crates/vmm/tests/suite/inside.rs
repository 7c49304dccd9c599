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
    let label: String =
        format!("{name}{argument}").chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
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
        kvm: false,
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

#[test]
fn a_machine_needs_a_user_that_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make that mistake");
        return;
    }
    let program = Program {
        path: PROBE.clone(),
        arguments: Vec::new(),
        data: Vec::new(),
        code: Vec::new(),
        linkage: Linkage::Dynamic,
        layers: Vec::new(),
        memory: None,
        inherit: Vec::new(),
        kvm: false,
        preload: None,
        environment: Vec::new(),
    };
    for uid in [None, Some(0)] {
        let mut config = jail_config();
        config.uid = uid;
        let error = launch(&program, &MachineDir::new(WORK.join("as-root")), &config).unwrap_err();
        assert!(error.to_string().contains("user of its own"), "{error}");
    }
    assert!(!Path::new(&WORK.join("as-root")).exists(), "nothing half-made");
}
