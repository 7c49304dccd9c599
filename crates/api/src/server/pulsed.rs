//! A connection that can carry interim responses while a request is being handled.
//!
//! [`Pulse`] asks for one. The connection writes it with hyper's next flush, which follows in the same poll, unless
//! hyper has begun to write the response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Python's `http.client` skips any number of these, and each one restarts its read timer.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

pub(super) struct Pulsed<S> {
    stream: S,
    wanted: Arc<AtomicBool>,
    /// The unsent rest of an interim response. It must be written before anything else.
    owed: &'static [u8],
}

/// Requests interim responses on a connection.
#[derive(Clone)]
pub(super) struct Pulse(Arc<AtomicBool>);

impl Pulse {
    /// Requests one interim response. Call this from the future that handles the request.
    pub(super) fn beat(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S: AsyncWrite + Unpin> Pulsed<S> {
    pub(super) fn new(stream: S) -> (Self, Pulse) {
        let wanted = Arc::new(AtomicBool::new(false));
        (Self { stream, wanted: wanted.clone(), owed: &[] }, Pulse(wanted))
    }

    fn poll_owed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.owed.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, self.owed))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.owed = &self.owed[count..];
        }
        Poll::Ready(Ok(()))
    }

    /// Before bytes of hyper: a response has begun, so it needs no interim response anymore.
    fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wanted.store(false, Ordering::Relaxed);
        self.poll_owed(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pulsed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pulsed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_begin(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_begin(context))?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper flushes when its own buffer is empty, so a message has ended or not yet begun.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wanted.swap(false, Ordering::Relaxed) && self.owed.is_empty() {
            self.owed = INTERIM;
        }
        ready!(self.poll_owed(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_beat_goes_out_between_messages_only() {
        // A narrow pipe, so that an interim response is written in several pieces.
        let (mut client, server) = tokio::io::duplex(5);
        let (mut connection, pulse) = Pulsed::new(server);
        let writing = async move {
            pulse.beat();
            connection.flush().await.unwrap();
            connection.write_all(b"half a ").await.unwrap();
            pulse.beat();
            connection.write_all(b"message").await.unwrap();
            connection.flush().await.unwrap();
            connection.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let (_, read) = tokio::join!(writing, client.read_to_end(&mut heard));
        read.unwrap();
        assert_eq!(heard, [INTERIM, b"half a message"].concat());
    }
}
