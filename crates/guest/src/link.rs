//! The byte channel to the host: a virtio-serial port, or a Unix socket in tests.
//!
//! The channel can break, or lose its peer, at any time. The agent then opens it again, without a limit on retries.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandling_protocol::frame::{Decoder, Frame, FrameError};
use sandling_protocol::{PORT_NAME, ToGuest};

use crate::outbox::Outbox;

/// The most that a virtio port takes in one write.
const WRITE_BYTES: usize = 32 * 1024;

pub enum Endpoint {
    Port,
    Listener(UnixListener),
}

pub struct Link {
    endpoint: Endpoint,
    fd: Option<OwnedFd>,
    decoder: Decoder,
    unsent: Vec<u8>,
}

/// The result of a read.
pub enum Received {
    Frames(Vec<Result<Frame<ToGuest>, FrameError>>),
    NothingYet,
    /// No host is connected; the channel stays open.
    HostAway,
    /// The channel must be opened again.
    Broken,
}

impl Link {
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, fd: None, decoder: Decoder::new(), unsent: Vec::new() }
    }

    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        match &self.endpoint {
            Endpoint::Listener(listener) => Some(listener.as_fd()),
            Endpoint::Port => None,
        }
    }

    /// Opens the port, or accepts the next connection. Wait on the descriptor edge-triggered.
    pub fn open(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.close();
        let fd = match &self.endpoint {
            Endpoint::Port => open_port()?,
            Endpoint::Listener(listener) => {
                let connection = listener.accept()?.0;
                connection.set_nonblocking(true)?;
                connection.into()
            }
        };
        self.decoder = Decoder::new();
        let fd: &OwnedFd = self.fd.insert(fd);
        Ok(fd.as_fd())
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    pub fn close(&mut self) {
        self.fd = None;
        self.unsent.clear();
    }

    /// Drops unsent bytes, even in the middle of a frame.
    pub fn forget_unsent(&mut self) {
        self.unsent.clear();
    }

    pub fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let Some(fd) = &self.fd else {
            return Received::NothingYet;
        };
        match rustix::io::read(fd, &mut *buffer) {
            Ok(0) if matches!(self.endpoint, Endpoint::Port) => Received::HostAway,
            Ok(0) => Received::Broken,
            Ok(length) => Received::Frames(self.decoder.push(&buffer[..length])),
            Err(Errno::AGAIN | Errno::INTR) => Received::NothingYet,
            Err(_) => Received::Broken,
        }
    }

    /// Sends what the channel takes without blocking. `Ok(true)`: nothing is left.
    pub fn send_from(&mut self, outbox: &Outbox) -> io::Result<bool> {
        let Some(fd) = &self.fd else {
            return Ok(true);
        };
        loop {
            outbox.drain_into(&mut self.unsent, WRITE_BYTES);
            if self.unsent.is_empty() {
                return Ok(true);
            }
            match crate::sys::fds::write(fd, &self.unsent)? {
                0 => return Ok(false),
                sent => drop(self.unsent.drain(..sent)),
            }
        }
    }
}

fn open_port() -> io::Result<OwnedFd> {
    for port in fs::read_dir("/sys/class/virtio-ports")? {
        let port = port?;
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT_NAME {
            let path = std::path::Path::new("/dev").join(port.file_name());
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            return Ok(rustix::fs::open(path, flags, Mode::empty())?);
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}
