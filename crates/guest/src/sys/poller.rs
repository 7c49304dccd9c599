//! One epoll for everything the agent waits on.
//!
//! Each event carries its source, so no table has to be kept in step. A closed descriptor leaves epoll by itself. An event
//! of a descriptor that was closed in the same batch names a key that no longer exists.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The channel to the host.
    Link,
    /// Test mode: a host wants to connect.
    Listener,
    /// A worker thread has something to send.
    Wake,
    /// A child has changed its state.
    Children,
    ExecStdout(u64),
    ExecStderr(u64),
    ExecStdin(u64),
    /// An interpreter's control socket.
    Control(u64),
    ContextStdout(u64),
    ContextStderr(u64),
    /// Output of a background process whose command was forgotten.
    Discarded(u64),
    Tunnel(u64),
}

impl Source {
    fn pack(self) -> u64 {
        let (kind, key) = match self {
            Self::Link => (0, 0),
            Self::Listener => (1, 0),
            Self::Wake => (2, 0),
            Self::Children => (3, 0),
            Self::ExecStdout(key) => (4, key),
            Self::ExecStderr(key) => (5, key),
            Self::ExecStdin(key) => (6, key),
            Self::Control(key) => (7, key),
            Self::ContextStdout(key) => (8, key),
            Self::ContextStderr(key) => (9, key),
            Self::Discarded(key) => (10, key),
            Self::Tunnel(key) => (11, key),
        };
        key << 8 | kind
    }

    fn unpack(packed: u64) -> Option<Self> {
        let key = packed >> 8;
        Some(match packed & 0xff {
            0 => Self::Link,
            1 => Self::Listener,
            2 => Self::Wake,
            3 => Self::Children,
            4 => Self::ExecStdout(key),
            5 => Self::ExecStderr(key),
            6 => Self::ExecStdin(key),
            7 => Self::Control(key),
            8 => Self::ContextStdout(key),
            9 => Self::ContextStderr(key),
            10 => Self::Discarded(key),
            11 => Self::Tunnel(key),
            _ => return None,
        })
    }
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Only errors and hang-ups, which epoll always reports.
    Nothing,
    Read,
    Write,
    Both,
    /// Edge-triggered. The virtio port reports a hang-up for as long as no host is connected; level-triggered, that would
    /// be a busy loop.
    ReadEdges,
    BothEdges,
}

impl Interest {
    pub fn of(read: bool, write: bool) -> Self {
        match (read, write) {
            (false, false) => Self::Nothing,
            (true, false) => Self::Read,
            (false, true) => Self::Write,
            (true, true) => Self::Both,
        }
    }

    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Nothing => epoll::EventFlags::empty(),
            Self::Read => epoll::EventFlags::IN,
            Self::Write => epoll::EventFlags::OUT,
            Self::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Self::ReadEdges => epoll::EventFlags::IN | epoll::EventFlags::ET,
            Self::BothEdges => epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET,
        }
    }
}

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: Vec::with_capacity(64) })
    }

    pub fn add(&self, fd: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(source.pack()), interest.flags())?)
    }

    pub fn change(&self, fd: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(source.pack()), interest.flags())?)
    }

    /// Stops waiting on a descriptor that stays open.
    pub fn remove(&self, fd: impl AsFd) {
        // Fails only for a descriptor that is not registered.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until something is ready or the timeout is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Vec<Source> {
        let timeout = timeout.map(round_up_to_ms).and_then(|t| Timespec::try_from(t).ok());
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) => self.events.iter().filter_map(|event| Source::unpack(event.data.u64())).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Rounds up, because waking before a timer is due would only mean waiting again.
fn round_up_to_ms(timeout: Duration) -> Duration {
    Duration::from_millis(timeout.as_micros().div_ceil(1000) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_can_be_packed_and_unpacked() {
        for source in [Source::Link, Source::Children, Source::ExecStderr(7), Source::Tunnel(u64::MAX >> 8)] {
            assert_eq!(Source::unpack(source.pack()), Some(source));
        }
        assert_eq!(Source::unpack(0xff), None);
    }

    #[test]
    fn a_full_pipe_is_not_writable_and_an_empty_one_not_readable() {
        let (read, write) = crate::sys::fds::pipe().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&read, Source::ExecStdout(1), Interest::Read).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).is_empty());
        rustix::io::write(&write, b"x").unwrap();
        assert_eq!(poller.wait(None), [Source::ExecStdout(1)]);
    }
}
