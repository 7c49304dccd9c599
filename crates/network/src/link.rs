//! The cable: Ethernet frames to and from the machine, one Unix datagram each.
//!
//! Usually a pair of sockets that are connected to each other for good. Where both ends have names instead, there are
//! two sockets, because a connected datagram socket takes frames from its peer only, and QEMU's end is another one
//! after every restore: frames are received on a bound socket that is never connected, and sent from an unbound one
//! that is connected anew whenever the machine's end is. A connected socket also learns when the peer has room again;
//! until then nothing more is sent, so that a slow machine slows its senders down instead of losing frames.

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

use crate::config::Cable;
use crate::event::{Counters, add};

/// Frames that wait while the machine takes none; connections hold back long before, only answers come on top.
const WAITING: usize = 256;
/// How often a machine that is not there is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The gateway's end of the cable.
pub(crate) struct Link {
    receive: Arc<UnixDatagram>,
    /// Absent if the sockets are a pair.
    names: Option<Names>,
    sending: Mutex<Sending>,
    full: AtomicBool,
    waiting: Notify,
    room: Notify,
}

/// The names of both ends, and which socket it was that we gave ours to.
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
    /// Takes hold of our end. The machine's need not be there yet.
    pub fn open(cable: Cable) -> io::Result<Link> {
        match cable {
            Cable::Pair(socket) => {
                socket.set_nonblocking(true)?;
                let socket = Arc::new(UnixDatagram::from_std(socket)?);
                Ok(Link::new(socket.clone(), None, Some(socket)))
            }
            Cable::Named { gateway, machine } => {
                let (receive, inode) = bind(&gateway)?;
                Ok(Link::new(Arc::new(receive), Some(Names { own: gateway, inode, machine }), None))
            }
        }
    }

    fn new(receive: Arc<UnixDatagram>, names: Option<Names>, socket: Option<Arc<UnixDatagram>>) -> Link {
        Link {
            receive,
            names,
            sending: Mutex::new(Sending { socket, queue: VecDeque::new() }),
            full: AtomicBool::new(false),
            waiting: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Takes the socket's name away, if it has one, unless another gateway has bound it meanwhile.
    pub fn unbind(&self) {
        if let Some(Names { own, inode, .. }) = &self.names
            && std::fs::metadata(own).is_ok_and(|there| there.ino() == *inode)
        {
            let _ = std::fs::remove_file(own);
        }
    }

    /// Waits until the machine has sent something.
    pub async fn readable(&self) -> io::Result<()> {
        self.receive.readable().await
    }

    /// Receives a frame if one is there. What is longer than `room` is cut.
    pub fn try_receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.receive.try_recv(room)
    }

    /// Whether senders that can wait should.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Waits until there is room again.
    pub async fn room(&self) {
        let room = self.room.notified();
        tokio::pin!(room);
        room.as_mut().enable();
        if self.is_full() {
            room.await;
        }
    }

    /// Sends a frame now, or when the machine has room, or never if it is not there.
    pub fn send(&self, frame: Vec<u8>, counters: &Counters) {
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
                // The machine's end was closed; another one may be there.
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

    /// Sends what waits, for ever.
    pub async fn send_waiting(&self, counters: &Counters) {
        loop {
            self.waiting.notified().await;
            while let Some(socket) = self.send_some(counters) {
                // A machine that vanishes without closing its end wakes nobody, hence the second look.
                let _ = tokio::time::timeout(LOOK_AGAIN, socket.writable()).await;
            }
            self.room.notify_waiters();
        }
    }

    /// Sends until the machine takes no more; answers the socket to wait for, or nothing if all is sent.
    fn send_some(&self, counters: &Counters) -> Option<Arc<UnixDatagram>> {
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

/// Binds `own` anew, for nobody but us to send to.
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
