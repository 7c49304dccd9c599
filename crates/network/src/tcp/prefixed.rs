//! A stream whose first bytes have already been read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first bytes have already been read.
pub(crate) struct Prefixed<S> {
    first: Vec<u8>,
    taken: usize,
    stream: S,
}

impl<S> Prefixed<S> {
    pub fn new(first: Vec<u8>, stream: S) -> Prefixed<S> {
        Prefixed { first, taken: 0, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &self.first[self.taken..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, room);
        }
        let count = left.len().min(room.remaining());
        room.put_slice(&left[..count]);
        self.taken += count;
        if self.taken == self.first.len() {
            self.first = Vec::new();
            self.taken = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
