//! A TCP connection with the guest, to read from and write to.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use smoltcp::socket::tcp::{RecvError, Socket, State};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::stack::Stack;
use crate::link::Link;

/// A TCP connection with the guest.
pub(crate) struct Connection {
    link: Arc<Link>,
    inner: Mutex<Inner>,
    /// Wakes `drive` because a timer may now be due earlier.
    sooner: Notify,
}

struct Inner {
    stack: Stack,
    /// When `drive` wakes up next.
    due: Option<Instant>,
    /// The guest does not know this connection, so nothing is sent to it.
    silent: bool,
    /// How many segments without effect are still tolerated.
    idle_credit: u32,
}

/// Each useful segment earns this much credit for segments without effect, such as window updates, up to this maximum.
const IDLE_CREDIT: (u32, u32) = (4, 1024);

impl Connection {
    /// Accepts the next SYN that is fed to it, as `address` and `port`.
    pub fn accepting(link: &Arc<Link>, address: Ipv4Addr, port: u16, buffer: usize) -> Option<Connection> {
        let stack = Stack::listening(link, address, port, buffer)?;
        Some(Connection::new(link, stack))
    }

    /// Connects to `port` of the guest.
    pub fn dialling(link: &Arc<Link>, port: u16, from_port: u16, buffer: usize) -> Option<Connection> {
        let stack = Stack::dialling(link, port, from_port, buffer)?;
        Some(Connection::new(link, stack))
    }

    fn new(link: &Arc<Link>, stack: Stack) -> Connection {
        let inner = Mutex::new(Inner { stack, due: None, silent: false, idle_credit: 0 });
        Connection { link: link.clone(), inner, sooner: Notify::new() }
    }

    /// Processes a packet of the guest that belongs to this connection. Returns whether it was useful.
    pub fn feed(&self, packet: &[u8]) -> bool {
        let mut inner = self.lock();
        let before = standing(inner.stack.socket());
        // smoltcp has panicked on packets before. A panic must end one connection, and not the gateway.
        let fed = catch_unwind(AssertUnwindSafe(|| inner.stack.exchange(&self.link, Some(packet))));
        if fed.is_err() {
            tracing::error!("the TCP stack panicked on a packet; the gateway drops the connection");
            inner.stack.socket().abort();
        }
        let brought_something = standing(inner.stack.socket()) != before;
        let of_use = brought_something || inner.idle_credit > 0;
        inner.idle_credit = if brought_something {
            (inner.idle_credit + IDLE_CREDIT.0).min(IDLE_CREDIT.1)
        } else {
            inner.idle_credit.saturating_sub(1)
        };
        self.rearm(&mut inner);
        of_use
    }

    /// Acts on the socket, then sends what the stack has to send.
    fn with<R>(&self, act: impl FnOnce(&mut Socket<'static>) -> R) -> R {
        let mut inner = self.lock();
        let result = act(inner.stack.socket());
        self.exchange(&mut inner);
        self.rearm(&mut inner);
        result
    }

    fn exchange(&self, inner: &mut Inner) {
        if !inner.silent {
            inner.stack.exchange(&self.link, None);
        }
    }

    /// Reads the socket's state without changing it.
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

    /// Runs the connection's timers until it is closed.
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
                    // The timer is due and nothing was sent, so the link is full.
                    Some(due) if due <= Instant::now() && self.link.is_full() => self.link.room().await,
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

    /// Waits until the three-way handshake is complete or has failed.
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

    /// Whether the three-way handshake is complete.
    pub fn is_established(&self) -> bool {
        self.look(|socket| !opening(socket))
    }

    /// Ends the connection at once. Sends a reset, unless the connection is over.
    pub fn abort(&self) {
        self.with(|socket| {
            if socket.state() != State::TimeWait {
                socket.abort();
            }
        });
    }

    /// Ends the connection silently, because the guest does not know it any more.
    pub fn vanish(&self) {
        let mut inner = self.lock();
        inner.silent = true;
        inner.stack.socket().abort();
        self.rearm(&mut inner);
    }

    /// Whether it ended silently.
    pub fn has_vanished(&self) -> bool {
        self.lock().silent
    }

    /// Sends FIN: no more data follows.
    pub fn finish(&self) {
        self.with(Socket::close);
    }

    /// Whether no more data can be sent.
    pub fn is_finished(&self) -> bool {
        self.look(|socket| is_finished(socket))
    }

    /// Waits until the guest has sent data, a FIN or a reset.
    pub async fn readable(&self) {
        self.wait(Socket::register_recv_waker, |socket| socket.can_recv() || !awaits_data(socket)).await;
    }

    /// Waits until there is room to send, or sending is no longer possible.
    pub async fn writable(&self) {
        self.wait(Socket::register_send_waker, |socket| socket.can_send() || is_finished(socket)).await;
    }

    /// Waits until sending is no longer possible.
    pub async fn lost(&self) {
        self.wait(Socket::register_send_waker, |socket| is_finished(socket)).await;
    }

    async fn wait(&self, register: fn(&mut Socket<'static>, &Waker), is_ready: impl Fn(&Socket<'static>) -> bool) {
        std::future::poll_fn(|context| {
            self.look(|socket| {
                if is_ready(socket) {
                    return Poll::Ready(());
                }
                register(socket, context.waker());
                Poll::Pending
            })
        })
        .await;
    }

    /// Calls `take` with the received bytes, as far as they are contiguous. `take` returns how many it consumed. Zero
    /// bytes mean the end of the stream.
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

    /// Calls `give` with the contiguous free space. `give` returns how many bytes it wrote.
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

    /// Waits until the guest has acknowledged everything and the connection is over, for at most `patience`.
    pub async fn over(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.drive()).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that a useful segment changes: it brings bytes, acknowledges some, or changes the connection's state.
fn standing(socket: &Socket<'_>) -> (State, usize, usize) {
    (socket.state(), socket.recv_queue(), socket.send_queue())
}

fn opening(socket: &Socket<'_>) -> bool {
    matches!(socket.state(), State::Listen | State::SynReceived | State::SynSent)
}

fn is_finished(socket: &Socket<'_>) -> bool {
    !socket.may_send() && !opening(socket)
}

/// Whether more data may still arrive.
fn awaits_data(socket: &Socket<'_>) -> bool {
    opening(socket) || matches!(socket.state(), State::Established | State::FinWait1 | State::FinWait2)
}
