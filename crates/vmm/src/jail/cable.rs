//! The program's network: one end of a pair of datagram sockets, and nothing else.
//!
//! The program is born with one end. The supervisor holds the other, and hands a descriptor of it to whoever connects to a
//! socket in its directory. So the cable outlives the caller, it has no name that the program could put something else
//! under, and the program needs no system call to make or bind a socket. Frames that nobody takes fill the socket and
//! then wait in the guest.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, socketpair,
};

/// The supervisor's end, and where it is asked for.
pub(super) struct Cable {
    listener: OwnedFd,
    end: OwnedFd,
}

impl Cable {
    /// A cable that is handed out at `listener`, and the program's end of it.
    pub fn new(listener: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let (end, programs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self { listener, end }, programs))
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Hands our end to somebody who has connected. One that has gone again, or takes nothing, is forgotten.
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

/// Takes the supervisor's end from it.
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
