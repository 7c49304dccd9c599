//! Connecting to a machine's sockets, whose paths may be too long for a socket address.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use tokio::net::UnixStream;

/// Connects by way of an open directory: a Unix socket address has room for some 100 bytes only.
pub(super) async fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let directory = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    UnixStream::connect(short).await
}
