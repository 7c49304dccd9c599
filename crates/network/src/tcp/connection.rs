//! A connection with the guest as others see it: something to read from and write to.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use smoltcp::socket::tcp::{RecvError, Socket, State};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::stack::{Cable, Stack};
use crate::shared::Shared;

/// A connection with the guest.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
    /// Something happened that may need the clock earlier than thought.
    sooner: Notify,
}

struct Inner {
    stack: Stack,
    /// When `drive` will look at the clock next.
    due: Option<Instant>,
    /// The guest knows nothing of this connection, and shall hear nothing of it.
    silent: bool,
    /// How many segments that change nothing may still come.
    idle_words: u32,
}

/// A segment that brings something lets so many pass that bring nothing, e.g. because they only open the window, and no
/// more than so many are saved up.
const IDLE_WORDS: (u32, u32) = (4, 1024);

impl Connection {
    /// Accepts, as `address` and `port`, the SYN that is fed to it next.
    pub fn accepting(shared: &Arc<Shared>, address: std::net::Ipv4Addr, port: u16) -> Option<Connection> {
        let stack = Stack::listening(cable(shared), address, port, shared.table.buffer())?;
        Some(Connection::new(shared, stack))
    }

    /// Connects to `port` of the guest.
    pub fn dialling(shared: &Arc<Shared>, port: u16, from_port: u16) -> Option<Connection> {
        let stack = Stack::dialling(cable(shared), port, from_port, shared.table.buffer())?;
        Some(Connection::new(shared, stack))
    }

    fn new(shared: &Arc<Shared>, stack: Stack) -> Connection {
        let inner = Mutex::new(Inner { stack, due: None, silent: false, idle_words: 0 });
        Connection { shared: shared.clone(), inner, sooner: Notify::new() }
    }

    /// Takes in a packet of the guest's that belongs to this connection. Answers whether it was of use.
    pub fn feed(&self, packet: &[u8]) -> bool {
        let mut inner = self.lock();
        let before = standing(inner.stack.socket());
        // Packets have made smoltcp panic before. That must end one connection, not the gateway.
        let fed = catch_unwind(AssertUnwindSafe(|| inner.stack.exchange(cable(&self.shared), Some(packet))));
        if fed.is_err() {
            tracing::error!("the TCP stack panicked on a packet; its connection is dropped");
            inner.stack.socket().abort();
        }
        let brought_something = standing(inner.stack.socket()) != before;
        let of_use = brought_something || inner.idle_words > 0;
        inner.idle_words = if brought_something {
            (inner.idle_words + IDLE_WORDS.0).min(IDLE_WORDS.1)
        } else {
            inner.idle_words.saturating_sub(1)
        };
        self.rearm(&mut inner);
        of_use
    }

    /// Does something with the socket, and sends what came of it.
    fn with<R>(&self, act: impl FnOnce(&mut Socket<'static>) -> R) -> R {
        let mut inner = self.lock();
        let result = act(inner.stack.socket());
        self.exchange(&mut inner);
        self.rearm(&mut inner);
        result
    }

    fn exchange(&self, inner: &mut Inner) {
        if !inner.silent {
            inner.stack.exchange(cable(&self.shared), None);
        }
    }

    /// Looks at the socket without changing it.
    fn look<R>(&self, act: impl FnOnce(&mut Socket<'static>) -> R) -> R {
        act(self.lock().stack.socket())
    }

    fn rearm(&self, inner: &mut Inner) {
        let due = inner.stack.due().map(|wait| Instant::now() + wait);
        let sooner = match (due, inner.due) {
            (Some(due), Some(known)) => due < known,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let closed = inner.stack.socket().state() == State::Closed;
        if sooner || closed {
            inner.due = due;
            self.sooner.notify_one();
        }
    }

    /// Keeps the connection's clock until it is closed.
    pub async fn drive(&self) {
        loop {
            let due = {
                let mut inner = self.lock();
                self.exchange(&mut inner);
                if matches!(inner.stack.socket().state(), State::Closed | State::TimeWait) {
                    return;
                }
                inner.due = inner.stack.due().map(|wait| Instant::now() + wait);
                inner.due
            };
            let clock = async {
                match due {
                    // Due already and nothing was sent: the link is full.
                    Some(due) if due <= Instant::now() && self.shared.link.is_full() => self.shared.link.room().await,
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = clock => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Waits until the three-way handshake is done, or failed.
    pub async fn established(&self) -> io::Result<()> {
        std::future::poll_fn(|context| {
            self.look(|socket| match socket.state() {
                State::Listen | State::SynReceived | State::SynSent => {
                    socket.register_send_waker(context.waker());
                    Poll::Pending
                }
                State::Closed => Poll::Ready(Err(ErrorKind::ConnectionRefused.into())),
                _ => Poll::Ready(Ok(())),
            })
        })
        .await
    }

    /// Whether the three-way handshake is done.
    pub fn is_established(&self) -> bool {
        self.look(|socket| !opening(socket))
    }

    /// Ends the connection at once, with a reset unless it is over.
    pub fn abort(&self) {
        self.with(|socket| {
            if socket.state() != State::TimeWait {
                socket.abort();
            }
        });
    }

    /// Ends the connection without telling the guest, which does not know it any more.
    pub fn vanish(&self) {
        let mut inner = self.lock();
        inner.silent = true;
        inner.stack.socket().abort();
        self.rearm(&mut inner);
    }

    /// Whether it was ended so.
    pub fn has_vanished(&self) -> bool {
        self.lock().silent
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        self.with(Socket::close);
    }

    /// Whether nothing more will be sent.
    pub fn is_finished(&self) -> bool {
        self.look(|socket| is_finished(socket))
    }

    /// Waits until the guest sent something, ended its side, or reset.
    pub async fn readable(&self) {
        std::future::poll_fn(|context| {
            self.look(|socket| {
                if socket.can_recv() || !awaits_data(socket) {
                    return Poll::Ready(());
                }
                socket.register_recv_waker(context.waker());
                Poll::Pending
            })
        })
        .await;
    }

    /// Waits until something can be sent, or never again.
    pub async fn writable(&self) {
        std::future::poll_fn(|context| {
            self.look(|socket| {
                if socket.can_send() || !(socket.may_send() || opening(socket)) {
                    return Poll::Ready(());
                }
                socket.register_send_waker(context.waker());
                Poll::Pending
            })
        })
        .await;
    }

    /// Waits until nothing can be sent any more.
    pub async fn lost(&self) {
        std::future::poll_fn(|context| {
            self.look(|socket| {
                if is_finished(socket) {
                    return Poll::Ready(());
                }
                socket.register_send_waker(context.waker());
                Poll::Pending
            })
        })
        .await;
    }

    /// Lets `take` read what the guest sent, as much as lies in one piece; it answers how much it took. Zero bytes
    /// are the end.
    pub fn receive(&self, take: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.with(|socket| {
            if !socket.can_recv() && awaits_data(socket) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = socket.recv(|bytes| match take(bytes) {
                Ok(count) => (count, Ok(count)),
                Err(error) => (0, Err(error)),
            });
            match taken {
                Ok(result) => result,
                Err(RecvError::Finished) => Ok(0),
                Err(RecvError::InvalidState) => Err(ErrorKind::ConnectionReset.into()),
            }
        })
    }

    /// Lets `give` write to the guest, as much as fits in one piece; it answers how much it gave.
    pub fn send(&self, give: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.with(|socket| {
            if is_finished(socket) {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if !socket.can_send() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let given = socket.send(|room| match give(room) {
                Ok(count) => (count, Ok(count)),
                Err(error) => (0, Err(error)),
            });
            given.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))
        })
    }

    /// Waits until the guest has all that was sent and the connection is over, but no longer than `patience`.
    pub async fn over(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.drive()).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cable(shared: &Shared) -> Cable<'_> {
    Cable { ends: &shared.ends, link: &shared.link, counters: &shared.journal.counters }
}

/// What a segment that is of use changes: it brings bytes, takes some, or moves the connection on.
fn standing(socket: &Socket<'_>) -> (State, usize, usize) {
    (socket.state(), socket.recv_queue(), socket.send_queue())
}

fn opening(socket: &Socket<'_>) -> bool {
    matches!(socket.state(), State::Listen | State::SynReceived | State::SynSent)
}

fn is_finished(socket: &Socket<'_>) -> bool {
    !socket.may_send() && !opening(socket)
}

/// Whether data may still come that is not there yet.
fn awaits_data(socket: &Socket<'_>) -> bool {
    opening(socket) || matches!(socket.state(), State::Established | State::FinWait1 | State::FinWait2)
}
