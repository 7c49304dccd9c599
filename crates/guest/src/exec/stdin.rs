//! What waits to be written to a process: bounded by the credits of the streams it came from.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use sandling_protocol::StreamId;

use crate::sys::fds;
use crate::sys::poller::{Interest, Poller, Source};

/// The end-of-file character of a terminal.
const END_OF_FILE: u8 = 4;

pub struct Stdin {
    /// Absent once closed: further bytes are swallowed.
    fd: Option<OwnedFd>,
    /// Whose credit the bytes are, as long as that stream is there.
    queue: VecDeque<(Option<StreamId>, Vec<u8>)>,
    finished: bool,
    is_terminal: bool,
    /// Epoll tells when the pipe takes more.
    waiting: bool,
}

/// What a write came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes used up, per stream.
    pub consumed: Vec<(StreamId, usize)>,
    /// Something is left and the pipe is full.
    pub blocked: bool,
}

impl Stdin {
    pub fn pipe(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), queue: VecDeque::new(), finished: false, is_terminal: false, waiting: false }
    }

    pub fn terminal(fd: OwnedFd) -> Self {
        Self { is_terminal: true, ..Self::pipe(fd) }
    }

    pub fn closed() -> Self {
        Self { fd: None, queue: VecDeque::new(), finished: true, is_terminal: false, waiting: false }
    }

    /// Waits for room only while there is none: epoll would tell for ever of a reader that has gone.
    pub fn wait(&mut self, poller: &Poller, source: Source, blocked: bool) {
        let Some(fd) = &self.fd else {
            return;
        };
        match (self.waiting, blocked) {
            (false, true) => self.waiting = poller.add(fd, source, Interest::Write).is_ok(),
            (true, false) => {
                poller.remove(fd);
                self.waiting = false;
            }
            _ => {}
        }
    }

    pub fn add(&mut self, stream: StreamId, bytes: Vec<u8>) {
        self.queue.push_back((Some(stream), bytes));
    }

    /// No more will come. A terminal is told so by a character and stays open.
    pub fn finish(&mut self) {
        if self.is_terminal {
            self.queue.push_back((None, vec![END_OF_FILE]));
        } else {
            self.finished = true;
        }
    }

    /// A stream has gone: its bytes stay, its number may come to mean another.
    pub fn disown(&mut self, gone: StreamId) {
        for (stream, _) in self.queue.iter_mut().filter(|(stream, _)| *stream == Some(gone)) {
            *stream = None;
        }
    }

    pub fn close(&mut self) {
        self.fd = None;
    }

    /// Writes what fits; closes after the last byte.
    pub fn write(&mut self) -> Written {
        let mut written = Written::default();
        while let Some((stream, bytes)) = self.queue.front_mut() {
            let length = match self.fd.as_ref().map(|fd| fds::write(fd, bytes)) {
                Some(Ok(0)) => {
                    written.blocked = true;
                    return written;
                }
                Some(Ok(length)) => length,
                // Nobody reads any more: the bytes are used up, as they are for a program that ignores its stdin.
                Some(Err(_)) | None => {
                    self.fd = None;
                    bytes.len()
                }
            };
            written.consumed.extend(stream.map(|stream| (stream, length)));
            bytes.drain(..length);
            if bytes.is_empty() {
                self.queue.pop_front();
            }
        }
        if self.finished {
            self.fd = None;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_blocks_and_a_broken_one_swallows() {
        let (read, write) = fds::pipe().unwrap();
        fds::set_nonblocking(&write).unwrap();
        let mut stdin = Stdin::pipe(write);
        stdin.add(7, vec![b'x'; 1 << 20]);
        let first = stdin.write();
        assert!(first.blocked);
        let taken: usize = first.consumed.iter().map(|(_, bytes)| bytes).sum();
        drop(read);
        let second = stdin.write();
        assert_eq!(second, Written { consumed: vec![(7, (1 << 20) - taken)], blocked: false });
        assert!(stdin.fd.is_none());
    }
}
