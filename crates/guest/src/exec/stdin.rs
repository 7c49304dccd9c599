//! Bytes that wait to be written to a process. The credits of their streams bound them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use sandling_protocol::StreamId;

use crate::sys::fds;
use crate::sys::poller::{Interest, Poller, Source};

/// The end-of-file character of a terminal.
const END_OF_FILE: u8 = 4;

pub struct Stdin {
    /// `None` once closed: further bytes are dropped.
    fd: Option<OwnedFd>,
    /// Bytes, and the stream that gets credit for them as long as it is open.
    queue: VecDeque<(Option<StreamId>, Vec<u8>)>,
    finished: bool,
    is_terminal: bool,
    /// Epoll is registered to report when the pipe takes more.
    waiting: bool,
}

/// The result of a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Consumed bytes, per stream.
    pub consumed: Vec<(StreamId, usize)>,
    /// The pipe is full and bytes are left.
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

    /// Waits for room only while there is none, because epoll reports a closed pipe without end.
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

    /// Ends the input. A terminal gets an end-of-file character and stays open.
    pub fn finish(&mut self) {
        if self.is_terminal {
            self.queue.push_back((None, vec![END_OF_FILE]));
        } else {
            self.finished = true;
        }
    }

    /// A stream has ended: its bytes stay, but get no credit, because another stream may get its number.
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
                // The pipe has no reader: the bytes count as consumed, as for a program that ignores its stdin.
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
    fn a_full_pipe_blocks_and_a_broken_one_drops_bytes() {
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
