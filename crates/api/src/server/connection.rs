//! A client's connection as hyper sees it, with two additions.
//!
//! [`Pulse`] can write an interim response while a request is being handled. A client that stops reading is
//! disconnected after [`STALLED_AFTER`]. The socket is shared: hyper reads and writes it, and the pulse writes only
//! when hyper has nothing in flight.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long a client may leave its receive window full before the connection is dropped.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// Python's `http.client` skips any number of these, and each one restarts its read timer.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

pub(super) struct Connection {
    shared: Arc<Shared>,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// Writes interim responses into a connection.
#[derive(Clone)]
pub(super) struct Pulse(Arc<Shared>);

struct Shared {
    stream: TcpStream,
    outgoing: Mutex<Outgoing>,
}

struct Outgoing {
    /// Hyper has flushed everything, so the next byte begins a message.
    settled: bool,
    /// The unsent rest of an interim response. It must be written before anything else.
    owed: &'static [u8],
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> (Self, Pulse) {
        let outgoing = Mutex::new(Outgoing { settled: true, owed: &[] });
        let shared = Arc::new(Shared { stream, outgoing });
        (Self { shared: shared.clone(), stalled: None }, Pulse(shared))
    }

    /// Writes any owed bytes, then calls `attempt` when the socket is writable.
    fn poll_out(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let shared = self.shared.clone();
        let mut outgoing = shared.outgoing();
        outgoing.settled = false;
        loop {
            if shared.stream.poll_write_ready(context)?.is_pending() {
                drop(outgoing);
                return self.poll_stalled(context);
            }
            let written = match outgoing.owed {
                [] => attempt(&shared.stream),
                owed => shared.stream.try_write(owed),
            };
            match written {
                Ok(count) if outgoing.owed.is_empty() => {
                    self.stalled = None;
                    return Poll::Ready(Ok(count));
                }
                Ok(count) => outgoing.owed = &outgoing.owed[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let timer =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + STALLED_AFTER)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl Pulse {
    /// Sends one interim response, unless hyper has data in flight; then none is needed.
    pub(super) fn beat(&self) {
        let mut outgoing = self.0.outgoing();
        if outgoing.settled
            && outgoing.owed.is_empty()
            && let Ok(count) = self.0.stream.try_write(INTERIM)
        {
            outgoing.owed = &INTERIM[count..];
        }
    }
}

impl Shared {
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.shared.stream.poll_read_ready(context))?;
            match self.shared.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_out(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Hyper flushes when its own buffer is empty, so a message has ended or not yet begun.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.outgoing().settled = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = rustix::net::shutdown(&self.shared.stream, rustix::net::Shutdown::Write);
        match socket {
            // The client has already disconnected.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_beat_goes_out_between_messages_only() {
        let (mut client, server) = pair().await;
        let (mut connection, pulse) = Connection::new(server);
        pulse.beat();
        connection.write_all(b"half a ").await.unwrap();
        pulse.beat();
        connection.write_all(b"message").await.unwrap();
        connection.flush().await.unwrap();
        connection.shutdown().await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [INTERIM, b"half a message"].concat());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (_client, server) = pair().await;
        let (mut connection, _) = Connection::new(server);
        tokio::time::pause();
        let block = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = connection.write_all(&block).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
