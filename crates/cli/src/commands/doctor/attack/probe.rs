//! The program that runs in a jail in QEMU's place and tries what must fail there.
//!
//! It is this same binary with [`ARGUMENT`] as its first argument. It prints one line per attempt, `NAME ok SEEN` or
//! `NAME error NUMBER`. A system call that the filter regards as hostile ends it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::Duration;

/// The first argument with which the binary must call [`main`].
pub const ARGUMENT: &str = "__probe";

/// How many threads the probe tries to start; a machine may have fewer.
const TOO_MANY_THREADS: usize = 2000;

/// Makes each attempt that the arguments name as `ATTEMPT=ARGUMENT`.
pub fn main() -> ExitCode {
    for word in std::env::args().skip(2) {
        let (attempt, argument) = word.split_once('=').unwrap_or((&word, ""));
        let line = match attempt_it(attempt, argument) {
            Ok(seen) => format!("{word} ok {seen}\n"),
            Err(error) => format!("{word} error {}\n", error.raw_os_error().unwrap_or(0)),
        };
        if io::stdout().write_all(line.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn attempt_it(attempt: &str, argument: &str) -> io::Result<String> {
    match attempt {
        "stat" => fs::symlink_metadata(argument).map(|found| format!("mode {:o}", found.mode())),
        "list" => list(argument),
        "create" => File::create(argument).map(|_| "created".to_owned()),
        "write" => OpenOptions::new().write(true).open(argument).map(|_| "open for writing".to_owned()),
        "descriptors" => Ok(descriptors()),
        "processes" => Ok(format!("own pid {}", std::process::id())),
        "environment" => Ok(format!("{:?}", std::env::vars_os().collect::<Vec<_>>())),
        "call" => call(number(argument)?, [0; 4]),
        "socket" => call(libc::SYS_socket, [number(argument)?, 1, 0, 0]),
        "ioctl" => call(libc::SYS_ioctl, [0, number(argument)?, 0, 0]),
        "clone" => call(libc::SYS_clone, [number(argument)?, 0, 0, 0]),
        "exec" => exec(argument),
        "exec-descriptor" => exec_descriptor(),
        "threads" => threads(),
        "raise-limit" => raise_limit(),
        "memory-write" => memory(argument, |file| file.write_all(b"x")),
        "memory-share" => memory(argument, map_shared),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(Error::other)
}

fn checked(result: i64) -> io::Result<String> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(format!("answer {result}")) }
}

fn call(number: i64, arguments: [i64; 4]) -> io::Result<String> {
    let [a, b, c, d] = arguments;
    // SAFETY: numbers only; a call that takes them for addresses gets null or is refused before it looks.
    checked(unsafe { libc::syscall(number, a, b, c, d, 0i64, 0i64) })
}

fn exec(path: &str) -> io::Result<String> {
    let path = CString::new(path)?;
    let words = [path.as_ptr(), std::ptr::null()];
    // SAFETY: a NUL-terminated path and NULL-terminated lists that outlive the call.
    checked(unsafe { libc::syscall(libc::SYS_execve, path.as_ptr(), words.as_ptr(), words[1..].as_ptr()) })
}

/// Executes the descriptor from which the launcher started this program.
fn exec_descriptor() -> io::Result<String> {
    const EXEC_FD: i64 = 1000;
    let words = [c"".as_ptr(), std::ptr::null()];
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: as in `exec`.
    let result =
        unsafe { libc::syscall(libc::SYS_execveat, EXEC_FD, path, words.as_ptr(), words[1..].as_ptr(), flags) };
    checked(result)
}

fn list(path: &str) -> io::Result<String> {
    let names = fs::read_dir(path)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names.join(" "))
}

/// Which numbers are open descriptors, found by asking about each.
fn descriptors() -> String {
    let open = (0..1024).filter(|fd| call(libc::SYS_fcntl, [*fd, i64::from(libc::F_GETFD), 0, 0]).is_ok());
    open.map(|fd| fd.to_string()).collect::<Vec<_>>().join(" ")
}

fn threads() -> io::Result<String> {
    let wait = || std::thread::sleep(Duration::from_secs(60));
    for _ in 0..TOO_MANY_THREADS {
        std::thread::Builder::new().stack_size(64 * 1024).spawn(wait)?;
    }
    Ok(format!("{TOO_MANY_THREADS} threads"))
}

fn raise_limit() -> io::Result<String> {
    let unlimited = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    let nothing = std::ptr::null::<libc::rlimit64>();
    // SAFETY: a structure that outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, &raw const unlimited, nothing) })
}

/// Opens guest memory as QEMU does, which works, and then does what QEMU never does.
fn memory(path: &str, then: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<String> {
    let path = CString::new(path)?;
    // SAFETY: a NUL-terminated path that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: just opened, and not owned by anything else.
    let mut file = unsafe { File::from_raw_fd(fd as i32) };
    then(&mut file).map(|()| "memory was changed".to_owned())
}

fn map_shared(file: &mut File) -> io::Result<()> {
    let (null, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a fresh mapping at an address of the kernel's choice, never used.
    let mapped = unsafe { libc::mmap(null, 4096, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
}
