//! The byte channel to the host: a virtio-serial port, or a Unix socket in tests.
//!
//! It may be gone, or have nobody at its other end, at any time; then it is opened again, for ever.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandling_protocol::frame::{Decoder, Frame, FrameError};
use sandling_protocol::{PORT_NAME, ToGuest};

use crate::outbox::Outbox;

/// What one write to a virtio port takes.
const WRITE_BYTES: usize = 32 * 1024;

pub enum Place {
    Port,
    Listener(UnixListener),
}

pub struct Link {
    place: Place,
    fd: Option<OwnedFd>,
    decoder: Decoder,
    unsent: Vec<u8>,
}

/// What a read came to.
pub enum Received {
    Frames(Vec<Result<Frame<ToGuest>, FrameError>>),
    NothingYet,
    /// Nobody is at the other end; the channel itself stays.
    HostAway,
    /// The channel is gone and has to be opened anew.
    Broken,
}

impl Link {
    pub fn new(place: Place) -> Self {
        Self { place, fd: None, decoder: Decoder::new(), unsent: Vec::new() }
    }

    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::Listener(listener) => Some(listener.as_fd()),
            Place::Port => None,
        }
    }

    /// Opens the port, or takes the next connection. The descriptor is to be waited on, edge-triggered.
    pub fn open(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.close();
        let fd = match &self.place {
            Place::Port => open_port()?,
            Place::Listener(listener) => {
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

    /// Drops what was not yet sent, in the middle of a frame if need be.
    pub fn forget_unsent(&mut self) {
        self.unsent.clear();
    }

    pub fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let Some(fd) = &self.fd else {
            return Received::NothingYet;
        };
        match rustix::io::read(fd, &mut *buffer) {
            Ok(0) if matches!(self.place, Place::Port) => Received::HostAway,
            Ok(0) => Received::Broken,
            Ok(length) => Received::Frames(self.decoder.push(&buffer[..length])),
            Err(Errno::AGAIN | Errno::INTR) => Received::NothingYet,
            Err(_) => Received::Broken,
        }
    }

    /// Sends what the channel takes now. `Ok(true)`: everything is gone.
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
