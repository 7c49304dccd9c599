//! The cable, which is the program's whole network: a pair of datagram sockets.
//!
//! The program inherits one end. The supervisor holds the other, and sends a descriptor of it to each client that
//! connects to a socket in its directory. So the cable outlives the caller, has no name that the program could take
//! over, and the program needs no system call to make or bind a socket. Frames that no client reads fill the socket and
//! then wait in the guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, accept_with, socketpair};

use crate::pass_fd;

/// The supervisor's end, and the socket at which clients get it.
pub(super) struct Cable {
    listener: OwnedFd,
    end: OwnedFd,
}

impl Cable {
    /// A cable that clients get at `listener`, and the program's end of it.
    pub fn new(listener: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let (end, programs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self { listener, end }, programs))
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Sends our end to the next client. If the client has gone or does not read, this does nothing.
    pub fn hand_out(&self) {
        let Ok(asking) = accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
        let _ = pass_fd::send(&asking, b"c", Some(self.end.as_fd()), SendFlags::DONTWAIT);
    }
}

/// Receives the supervisor's end.
pub(crate) fn receive(supervisor: &UnixStream) -> io::Result<UnixDatagram> {
    let (_, end) = pass_fd::receive(supervisor, &mut [0])?;
    end.map(UnixDatagram::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
