//! Resource limits of the program.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::Limits;
use super::program::EXEC_FD;

/// Raises the limit of descriptors so that the program can be opened under [`EXEC_FD`].
pub(super) fn make_room_for_executable() -> io::Result<()> {
    let current = getrlimit(Resource::Nofile);
    let needed = EXEC_FD as u64 + 1;
    if current.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: current.maximum })?)
}

/// Sets every limit, hard and soft. Without a capability, none can be raised again.
pub(super) fn apply(limits: &Limits) -> io::Result<()> {
    set(Resource::Core, 0)?;
    set(Resource::Fsize, limits.file_bytes)?;
    set(Resource::Nofile, limits.open_files.min(EXEC_FD as u64))?;
    // The kernel counts in the machine's own user namespace, so other processes of the same user do not count.
    set(Resource::Nproc, limits.tasks)?;
    if let Some(bytes) = limits.address_space_bytes {
        set(Resource::As, bytes)?;
    }
    ignore_file_size_signal();
    Ok(())
}

fn set(resource: Resource, wanted: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(wanted, |hard| hard.min(wanted));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Ignores SIGXFSZ: a write beyond the limit then fails and the guest sees a disk error, instead of QEMU being killed.
fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
