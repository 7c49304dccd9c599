//! Descriptors: pipes, terminals, and non-blocking reads and writes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use sandling_protocol::TerminalSize;

#[derive(Debug, PartialEq, Eq)]
pub enum ReadResult {
    Bytes(usize),
    NothingYet,
    End,
}

/// Reads what is available. A terminal that its last user has closed returns EIO, which is its end.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> ReadResult {
    loop {
        return match rustix::io::read(&fd, &mut *buffer) {
            Ok(0) => ReadResult::End,
            Ok(length) => ReadResult::Bytes(length),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => ReadResult::NothingYet,
            Err(_) => ReadResult::End,
        };
    }
}

/// Writes what fits now. `Ok(0)`: nothing fits.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        return match rustix::io::write(&fd, bytes) {
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(0),
            result => Ok(result?),
        };
    }
}

/// A pipe whose ends block, and are closed in children.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

pub fn dev_null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Occupies the descriptors 0 to 3, which are replaced in children, so that no descriptor of the agent gets one.
pub fn reserve_low_numbers() -> io::Result<()> {
    loop {
        let fd = dev_null()?;
        if fd.as_raw_fd() > 3 {
            return Ok(());
        }
        std::mem::forget(fd);
    }
}

/// A pseudo-terminal: the agent's end and the command's.
pub fn terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
    resize(&ours, size)?;
    Ok((ours, theirs))
}

pub fn size(terminal: impl AsFd) -> io::Result<TerminalSize> {
    let size = rustix::termios::tcgetwinsize(terminal)?;
    Ok(TerminalSize { rows: size.ws_row, cols: size.ws_col })
}

pub fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
