//! The cable to the virtual machine: each Ethernet frame is one Unix datagram.
//!
//! The cable is usually a pair of connected sockets. If both ends have names instead, the gateway uses two sockets,
//! because a connected datagram socket accepts frames from its peer only and QEMU has a new socket after every restore.
//! The gateway receives on a bound socket that it never connects. It sends from an unbound socket, and connects that
//! again whenever the machine's end changes.
//!
//! A connected socket signals when its peer has room again. The gateway sends nothing until then, so a slow machine
//! slows its senders down and loses no frames.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::sync::Notify;

use crate::frame::Ends;
use crate::journal::{Journal, add};

/// The most frames that are queued while the machine accepts none. Connections pause long before that; only replies
/// such as ARP and DNS come on top.
const WAITING: usize = 256;
/// How often the gateway checks again for a machine that has disappeared.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How frames travel between the gateway and the machine.
pub enum Cable {
    /// Our end of a socket pair. QEMU inherited the other end (`local.type=fd`), so nothing else can reach it.
    Pair(std::os::unix::net::UnixDatagram),
    /// Named sockets, which either side may bind again at any time.
    Named {
        /// Where the gateway receives frames: QEMU's `remote.path`. An existing file there is replaced. Every process
        /// that can write to this socket can act as the guest, so restrict access to its directory.
        gateway: PathBuf,
        /// Where the machine receives frames: QEMU's `local.path`. It need not exist yet.
        machine: PathBuf,
    },
}

/// The gateway's end of the cable.
pub(crate) struct Link {
    pub ends: Ends,
    journal: Arc<Journal>,
    receive: Arc<UnixDatagram>,
    /// Absent if the sockets are a pair.
    names: Option<Names>,
    sending: Mutex<Sending>,
    full: AtomicBool,
    waiting: Notify,
    room: Notify,
}

/// The paths of both ends, and the inode of the socket that we bound.
struct Names {
    own: PathBuf,
    inode: u64,
    machine: PathBuf,
}

struct Sending {
    socket: Option<Arc<UnixDatagram>>,
    queue: VecDeque<Vec<u8>>,
}

impl Link {
    /// Opens our end. The machine's end need not exist yet.
    pub fn open(cable: Cable, ends: Ends, journal: Arc<Journal>) -> io::Result<Link> {
        let (receive, names, socket) = match cable {
            Cable::Pair(socket) => {
                socket.set_nonblocking(true)?;
                let socket = Arc::new(UnixDatagram::from_std(socket)?);
                (socket.clone(), None, Some(socket))
            }
            Cable::Named { gateway, machine } => {
                let (receive, inode) = bind(&gateway)?;
                (Arc::new(receive), Some(Names { own: gateway, inode, machine }), None)
            }
        };
        Ok(Link {
            ends,
            journal,
            receive,
            names,
            sending: Mutex::new(Sending { socket, queue: VecDeque::new() }),
            full: AtomicBool::new(false),
            waiting: Notify::new(),
            room: Notify::new(),
        })
    }

    /// Removes our socket file, if there is one and no other gateway has bound it since.
    pub fn unbind(&self) {
        if let Some(Names { own, inode, .. }) = &self.names
            && std::fs::metadata(own).is_ok_and(|there| there.ino() == *inode)
        {
            let _ = std::fs::remove_file(own);
        }
    }

    /// Waits until the machine has sent a frame.
    pub async fn readable(&self) -> io::Result<()> {
        self.receive.readable().await
    }

    /// Receives a frame if one has arrived. A frame longer than `room` is truncated.
    pub fn try_receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.receive.try_recv(room)
    }

    /// Whether the queue is in use, so senders that can wait should wait.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Waits until the queue is empty.
    pub async fn room(&self) {
        let room = self.room.notified();
        tokio::pin!(room);
        room.as_mut().enable();
        if self.is_full() {
            room.await;
        }
    }

    /// Sends a frame. Queues it while the machine has no room, and drops it if there is no machine.
    pub fn send(&self, frame: Vec<u8>) {
        let counters = &self.journal.counters;
        let mut sending = self.lock();
        if sending.queue.is_empty() {
            match self.try_send(&mut sending, &frame) {
                Ok(()) => return add(&counters.frames_out),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return add(&counters.frames_unsent),
            }
        }
        if sending.queue.len() >= WAITING {
            return add(&counters.frames_unsent);
        }
        sending.queue.push_back(frame);
        self.full.store(true, Ordering::Release);
        self.waiting.notify_one();
    }

    fn try_send(&self, sending: &mut Sending, frame: &[u8]) -> io::Result<()> {
        if let Some(socket) = &sending.socket {
            match (socket.try_send(frame), &self.names) {
                (Ok(_), _) => return Ok(()),
                (Err(error), None) => return Err(error),
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => return Err(error),
                // The machine closed its end. Try to connect to a new one.
                (Err(_), Some(_)) => sending.socket = None,
            }
        }
        let Names { machine, .. } = self.names.as_ref().ok_or(ErrorKind::NotConnected)?;
        let socket = UnixDatagram::unbound()?;
        socket.connect(machine)?;
        let sent = socket.try_send(frame);
        sending.socket = Some(Arc::new(socket));
        sent.map(drop)
    }

    /// Sends queued frames, forever.
    pub async fn send_waiting(&self) {
        loop {
            self.waiting.notified().await;
            while let Some(socket) = self.send_some() {
                // A machine that disappears without closing its end causes no wake-up, so check again after a timeout.
                let _ = tokio::time::timeout(LOOK_AGAIN, socket.writable()).await;
            }
            self.room.notify_waiters();
        }
    }

    /// Sends queued frames until the machine accepts no more. Returns the socket to wait for, or nothing if the queue
    /// is empty.
    fn send_some(&self) -> Option<Arc<UnixDatagram>> {
        let counters = &self.journal.counters;
        let mut sending = self.lock();
        while let Some(frame) = sending.queue.pop_front() {
            match self.try_send(&mut sending, &frame) {
                Ok(()) => add(&counters.frames_out),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sending.queue.push_front(frame);
                    return sending.socket.clone();
                }
                Err(_) => add(&counters.frames_unsent),
            }
        }
        self.full.store(false, Ordering::Release);
        None
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds `own`, replacing an existing socket, with access for our user only.
fn bind(own: &Path) -> io::Result<(UnixDatagram, u64)> {
    match std::fs::remove_file(own) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(own)?;
    std::fs::set_permissions(own, Permissions::from_mode(0o600))?;
    let inode = std::fs::metadata(own)?.ino();
    Ok((socket, inode))
}
