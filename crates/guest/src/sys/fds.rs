//! Descriptors: pipes, terminals, and reading without waiting.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use sandling_protocol::TerminalSize;

/// What a read that does not wait came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    NothingYet,
    End,
}

/// Reads what is there. A terminal whose last user has gone says EIO: that is its end.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> Got {
    loop {
        return match rustix::io::read(&fd, &mut *buffer) {
            Ok(0) => Got::End,
            Ok(length) => Got::Bytes(length),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Got::NothingYet,
            Err(_) => Got::End,
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

/// A pipe, closed in children, whose two ends block.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

pub fn dev_null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Occupies the numbers 0 to 3, which children get anew, so that nothing of ours ever has one of them.
pub fn reserve_low_numbers() -> io::Result<()> {
    loop {
        let fd = dev_null()?;
        if fd.as_raw_fd() > 3 {
            return Ok(());
        }
        std::mem::forget(fd);
    }
}

/// A pseudo-terminal: our end and the command's.
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

pub fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// How many bytes could be read right now.
pub fn waiting(fd: impl AsFd) -> usize {
    rustix::io::ioctl_fionread(fd).unwrap_or(0) as usize
}
