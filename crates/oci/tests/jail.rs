//! The confined process: what it can do, and what it cannot do even if it is compromised.
//!
//! This program is the confined process as well, so it has its own `main`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::process::{Command, ExitCode};
use std::time::Duration;

use sandling_oci::{
    Digest, Ext4Error, Jail, JailError, LayerInput, Limits, Progress, Summary, UNPACK_ARGUMENT, UnpackError,
    UnpackOptions, confined_main,
};

/// Which work the confined process does is the first byte of its layer.
const ATTACK: u8 = b'A';
const SLEEP: u8 = b'S';
const EAT_MEMORY: u8 = b'M';
const TALK: u8 = b'T';

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(UNPACK_ARGUMENT) {
        return confined_main(work);
    }
    let tests: [(&str, fn()); 6] = [
        ("a_layer_is_unpacked_with_progress", a_layer_is_unpacked_with_progress),
        ("a_refusal_is_passed_on", a_refusal_is_passed_on),
        ("a_compromised_process_reaches_nothing", a_compromised_process_reaches_nothing),
        ("a_process_past_its_deadline_is_killed", a_process_past_its_deadline_is_killed),
        ("a_process_that_needs_too_much_memory_dies_alone", a_process_that_needs_too_much_memory_dies_alone),
        ("a_message_that_never_ends_is_refused", a_message_that_never_ends_is_refused),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

fn work(
    layers: &[LayerInput],
    out: &File,
    options: &UnpackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, UnpackError> {
    let mut first = [0];
    std::os::unix::fs::FileExt::read_at(&layers[0].file, &mut first, 0).unwrap();
    match first[0] {
        ATTACK => Err(UnpackError::Ext4(Ext4Error::Write(std::io::Error::other(attack())))),
        SLEEP => loop {
            std::hint::spin_loop();
        },
        EAT_MEMORY => {
            let mut eaten = Vec::new();
            loop {
                eaten.push(vec![1_u8; 1 << 20]);
            }
        }
        TALK => loop {
            std::io::stdout().write_all(&[b'x'; 4096]).unwrap();
        },
        _ => sandling_oci::unpack(layers, out, options, progress),
    }
}

/// Tries what an attacker would try, and lists what worked.
fn attack() -> String {
    let mut worked = Vec::new();
    let mut attempt = |name: &str, result: i64| {
        if result >= 0 {
            worked.push(name.to_owned());
        }
    };
    // SAFETY: each call gets valid pointers or numbers, and the process has nothing to lose.
    unsafe {
        let path = c"/etc/passwd".as_ptr();
        attempt("open", libc::open(path, libc::O_RDONLY).into());
        attempt("open /", libc::open(c"/".as_ptr(), libc::O_RDONLY).into());
        attempt("openat2", libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path, 0, 0));
        attempt("create", libc::open(c"/tmp/x".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600).into());
        attempt("stat", libc::access(path, libc::F_OK).into());
        attempt("socket", libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into());
        attempt("unix socket", libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into());
        attempt("execve", libc::execve(c"/bin/true".as_ptr(), std::ptr::null(), std::ptr::null()).into());
        attempt("kill", libc::kill(1, 0).into());
        attempt("ptrace", libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0));
        attempt("unshare", libc::unshare(libc::CLONE_NEWUSER).into());
        attempt("setuid", libc::setuid(0).into());
        attempt("bpf", libc::syscall(libc::SYS_bpf, 0, 0, 0));
        attempt("io_uring", libc::syscall(libc::SYS_io_uring_setup, 1, 0));
        attempt("memfd", libc::syscall(libc::SYS_memfd_create, c"x".as_ptr(), 0));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let executable = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_EXEC, flags, -1, 0);
        attempt("executable memory", executable as i64);
        let copy = libc::fork();
        if copy == 0 {
            libc::_exit(0);
        }
        attempt("fork", copy.into());
    }
    let inherited = std::env::vars().count();
    format!("worked: {}; environment: {inherited}", worked.join(", "))
}

fn jail() -> Jail {
    let launcher = std::env::current_exe().unwrap();
    Jail { launcher, deadline: Duration::from_secs(30), memory_bytes: 1 << 30 }
}

fn layer(bytes: &[u8]) -> LayerInput {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let digest = Some(Digest::of(bytes));
    LayerInput { file, offset: 0, length: bytes.len() as u64, media_type: String::new(), digest, diff_id: None }
}

fn options() -> UnpackOptions {
    UnpackOptions { disk_mib: 64, limits: Limits::default(), extras: Vec::new() }
}

fn run(jail: &Jail, first: u8) -> Result<sandling_oci::Unpacked, JailError> {
    let out = tempfile::tempfile().unwrap();
    jail.unpack(&[layer(&[first; 1024])], &out, &options(), &mut |_| ())
}

fn archive(content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "file", content).unwrap();
    builder.into_inner().unwrap()
}

fn a_layer_is_unpacked_with_progress() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let out = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut seen = Vec::new();
    let layers = [layer(&archive(&[7; 10 << 20])), layer(&archive(b"second"))];
    let unpacked = jail().unpack(&layers, &out, &options(), &mut |progress| seen.push(progress)).unwrap();
    assert_eq!(unpacked.summary.inodes, 2);
    let last = seen.last().unwrap();
    assert_eq!((last.layer, last.read), (2, last.total));
    let checked = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    println!("protections that this host does not offer: {:?}", unpacked.missing);
}

fn a_refusal_is_passed_on() {
    let mut out = tempfile::tempfile().unwrap();
    out.rewind().unwrap();
    let mut damaged = layer(&archive(b"x"));
    damaged.digest = Some(Digest::of(b"other"));
    let error = jail().unpack(&[damaged], &out, &options(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("does not match its digest"), "{error}");
    let small = UnpackOptions { disk_mib: 16, ..options() };
    let error = jail().unpack(&[layer(&archive(&[7; 20 << 20]))], &out, &small, &mut |_| ()).unwrap_err();
    assert!(matches!(error, JailError::Refused { disk_too_small: true, .. }), "{error}");
}

fn a_compromised_process_reaches_nothing() {
    let error = run(&jail(), ATTACK).unwrap_err().to_string();
    assert_eq!(error, "cannot write the file system: worked: ; environment: 0");
}

fn a_process_past_its_deadline_is_killed() {
    let jail = Jail { deadline: Duration::from_secs(1), ..jail() };
    let error = run(&jail, SLEEP).unwrap_err().to_string();
    assert_eq!(error, "unpacking the image took longer than 1 seconds, which is the limit");
}

fn a_process_that_needs_too_much_memory_dies_alone() {
    let error = run(&jail(), EAT_MEMORY).unwrap_err();
    assert!(matches!(error, JailError::Died { .. }), "{error}");
    assert!(error.to_string().ends_with("it may need more than 1024 MiB of memory"), "{error}");
}

fn a_message_that_never_ends_is_refused() {
    let error = run(&jail(), TALK).unwrap_err();
    assert!(matches!(error, JailError::Malformed), "{error}");
}
