//! Connecting to a machine's sockets, however long the path to them is.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use tokio::net::UnixStream;

/// A Unix socket address holds some 100 bytes; a path through an open directory is always shorter.
pub(super) async fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let directory = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    UnixStream::connect(short).await
}
