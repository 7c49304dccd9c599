//! A client's TCP connection, which the pool can close from outside.
//!
//! A client that stops reading is disconnected after [`STALLED_AFTER`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::pool::{Close, Place};

/// How long a client may leave its receive window full before the connection is dropped.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// A place in the pool of TCP connections.
pub(super) type TcpPlace = Place<Arc<TcpStream>>;

pub(super) struct Socket {
    stream: Arc<TcpStream>,
    /// The connection keeps its place until nothing uses it: a WebSocket outlives the request that opened it.
    place: Arc<TcpPlace>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Close for Arc<TcpStream> {
    fn close(&self) {
        // All reads and writes of the connection's task end. An error means that the client has closed already.
        let _ = shutdown(&**self, Shutdown::Both);
    }
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, place: Arc<TcpPlace>) -> Self {
        Self { stream, place, stalled: None }
    }

    /// Calls `attempt` when the socket is writable.
    fn poll_out(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.stream.poll_write_ready(context)?.is_pending() {
                return self.poll_stalled(context);
            }
            match attempt(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.stalled = None;
                    return Poll::Ready(written);
                }
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

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_read_ready(context) else {
                self.place.phase.wait();
                return Poll::Pending;
            };
            ready?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    if count > 0 {
                        self.place.phase.hear();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(&*self.stream, Shutdown::Write) {
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
    use crate::forwarded::TrustedProxies;
    use crate::server::pool::{Pool, PoolLimits};

    async fn pair() -> (TcpStream, Socket, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Arc::new(listener.accept().await.unwrap().0);
        let long = Duration::from_secs(3600);
        let limits = PoolLimits {
            total: 1,
            untrusted: 1,
            untrusted_per_address: 1,
            proxies: TrustedProxies::default(),
            head: long,
            idle: long,
            untrusted_idle: long,
        };
        let pool = Pool::new(limits);
        let permit = pool.may_accept().await;
        let place = pool.admit([127, 0, 0, 1].into(), stream.clone(), permit, std::time::Instant::now());
        let socket = Socket::new(stream.clone(), Arc::new(place.ok().unwrap()));
        (client, socket, stream)
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (_client, mut socket, _) = pair().await;
        tokio::time::pause();
        let block = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = socket.write_all(&block).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_connection_that_the_pool_closes_ends_on_both_sides() {
        let (mut client, mut socket, stream) = pair().await;
        let reading = tokio::spawn(async move {
            let read = socket.read(&mut [0; 8]).await.unwrap();
            (read, socket.write_all(b"late").await.is_err())
        });
        tokio::task::yield_now().await;
        stream.close();
        assert_eq!(reading.await.unwrap(), (0, true));
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
