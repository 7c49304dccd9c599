//! The launcher: starts the jail and serves its proxy until the jail ends.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::inside;
use super::launch::Spec;
use super::proxy;
use crate::user_namespace;

/// The first argument of a program that must call [`main`] at once.
pub const ARGUMENT: &str = "__build-jail";

/// What a program does when its first argument is [`ARGUMENT`], before it starts a thread.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // The line is part of the build's error.
        eprintln!("E: cannot confine the build: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> io::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(2);
    let spec = arguments.next().ok_or_else(|| io::Error::other("the description is missing"))?;
    let spec: Spec = serde_json::from_slice(spec.as_encoded_bytes())?;
    // SAFETY: takes numbers. Nothing in this process has opened a descriptor yet.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let namespace = user_namespace::create().map_err(io::Error::other)?;
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the copy is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            inside::enter(&spec, namespace, theirs, arguments.collect())
        }
        entrant => {
            drop(theirs);
            // An entrant that fails passes nothing and says why.
            if let Some(listener) = inside::receive(&ours)? {
                let proxy = proxy::Proxy::new(spec.mirrors).map_err(io::Error::other)?;
                std::thread::spawn(move || {
                    if let Err(error) = proxy.serve(listener) {
                        eprintln!("E: the build's proxy failed: {error}");
                    }
                });
            }
            inside::wait_for(entrant)
        }
    }
}
