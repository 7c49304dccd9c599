//! An interpreter's control socket. It sends lines in order without blocking, and bounds the lines it receives.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::fds::{self, ReadResult};
use crate::sys::socket;

/// A driver keeps its lines below 8 MiB, so a longer one does not come from a driver.
const LONGEST_LINE: usize = 9 * 1024 * 1024;

pub struct Control {
    fd: OwnedFd,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// A line that is not worth waking the interpreter for; it is sent before the next line.
    deferred: Vec<u8>,
    /// Lines are held until the process is known and in its control group.
    held: bool,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Lines {
    /// Complete lines; more may follow.
    Some(Vec<Vec<u8>>),
    /// Complete lines, after which the interpreter closed the socket or broke the protocol.
    Closed(Vec<Vec<u8>>),
}

impl Control {
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, incoming: Vec::new(), outgoing: Vec::new(), deferred: Vec::new(), held: false }
    }

    /// Makes a socket that holds all lines until [`Control::release`].
    pub fn held(fd: OwnedFd) -> Self {
        Self { held: true, ..Self::new(fd) }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a line before the next one. Replaces an earlier line of this kind.
    pub fn send_with_next(&mut self, line: &[u8]) {
        self.deferred = [line, b"\n"].concat();
    }

    fn queue_deferred(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        self.outgoing.extend_from_slice(&deferred);
    }

    pub fn send(&mut self, line: &[u8]) {
        self.queue_deferred();
        self.outgoing.extend_from_slice(line);
        self.outgoing.push(b'\n');
        self.flush();
    }

    /// Sends a line with descriptors. Fails if other lines wait, because it must not overtake them.
    pub fn send_with_fds(&mut self, line: &[u8], fds: [BorrowedFd<'_>; 4]) -> std::io::Result<()> {
        self.queue_deferred();
        self.flush();
        if self.has_unsent() {
            return Err(std::io::Error::from(std::io::ErrorKind::WouldBlock));
        }
        socket::send_with_fds(&self.fd, line, fds)
    }

    pub fn release(&mut self) {
        self.held = false;
        self.flush();
    }

    pub fn has_unsent(&self) -> bool {
        !self.held && !self.outgoing.is_empty()
    }

    /// Whether the interpreter has read everything.
    pub fn is_read(&self) -> bool {
        self.outgoing.is_empty() && socket::unread(&self.fd) == 0
    }

    /// Sends what fits. A later read reports a broken socket.
    pub fn flush(&mut self) {
        while self.has_unsent() {
            match socket::send(&self.fd, &self.outgoing) {
                Ok(0) => return,
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(_) => self.outgoing.clear(),
            }
        }
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Lines {
        let got = fds::read(&self.fd, buffer);
        if let ReadResult::Bytes(length) = got {
            self.incoming.extend_from_slice(&buffer[..length]);
        }
        let lines = self.take_lines();
        if got == ReadResult::End || self.incoming.len() > LONGEST_LINE {
            Lines::Closed(lines)
        } else {
            Lines::Some(lines)
        }
    }

    fn take_lines(&mut self) -> Vec<Vec<u8>> {
        let Some(end) = self.incoming.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.incoming.split_off(end + 1);
        let whole = std::mem::replace(&mut self.incoming, rest);
        whole.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_a_close_is_reported() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut control = Control::new(ours);
        let mut buffer = [0; 64];
        rustix::io::write(&theirs, b"one\ntw").unwrap();
        assert_eq!(control.read(&mut buffer), Lines::Some(vec![b"one".to_vec()]));
        rustix::io::write(&theirs, b"o\n").unwrap();
        drop(theirs);
        assert_eq!(control.read(&mut buffer), Lines::Some(vec![b"two".to_vec()]));
        assert_eq!(control.read(&mut buffer), Lines::Closed(vec![]));
    }

    #[test]
    fn held_lines_are_sent_at_release_and_in_order() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut control = Control::held(ours);
        control.send(b"a");
        control.send(b"b");
        assert_eq!(rustix::io::ioctl_fionread(&theirs).unwrap(), 0);
        control.release();
        assert!(!control.is_read());
        let mut buffer = [0; 8];
        assert_eq!(rustix::io::read(&theirs, &mut buffer).unwrap(), 4);
        assert!(control.is_read());
        assert_eq!(&buffer[..4], b"a\nb\n");
    }

    #[test]
    fn an_owed_line_is_sent_once_before_the_next_line() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut control = Control::new(ours);
        control.send_with_next(b"forgotten");
        control.send_with_next(b"owed");
        assert_eq!(rustix::io::ioctl_fionread(&theirs).unwrap(), 0);
        control.send(b"a");
        control.send(b"b");
        let mut buffer = [0; 16];
        let length = rustix::io::read(&theirs, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"owed\na\nb\n");
    }

    #[test]
    fn lines_that_do_not_fit_are_sent_later() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut control = Control::new(ours);
        control.send(&vec![b'x'; 4 << 20]);
        assert!(control.has_unsent());
        let mut total = 0;
        let mut buffer = vec![0; 1 << 20];
        while total <= 4 << 20 {
            total += rustix::io::read(&theirs, &mut buffer).unwrap();
            control.flush();
        }
        assert!(!control.has_unsent());
    }
}
