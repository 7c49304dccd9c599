//! The cable, which is the program's whole network: a pair of datagram sockets.
//!
//! The program inherits one end. The supervisor holds the other, and sends a descriptor of it to each client that
//! connects to a socket in its directory. So the cable outlives the caller, has no name that the program could take
//! over, and the program needs no system call to make or bind a socket. Frames that no client reads fill the socket and
//! then wait in the guest.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, socketpair,
};

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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let end = [self.end.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&end));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(&asking, &[IoSlice::new(b"c")], &mut ancillary, flags);
    }
}

/// Receives the supervisor's end.
pub(crate) fn receive(supervisor: &UnixStream) -> io::Result<UnixDatagram> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(supervisor, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let end = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    end.map(UnixDatagram::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
