//! A connection with the guest as an async stream, within the sandbox's limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::connection::Connection;
use crate::traffic::Traffic;

/// A connection with the guest as an async stream.
pub(crate) struct GuestStream {
    connection: Arc<Connection>,
    traffic: Arc<Traffic>,
    reading: Pause,
    writing: Pause,
    /// Closes when the stream is dropped.
    _dropped: Option<oneshot::Sender<()>>,
}

/// A wait that the bandwidth limit requires.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl GuestStream {
    /// A stream whose bytes are counted and rate-limited.
    pub fn metered(connection: Arc<Connection>, traffic: Arc<Traffic>) -> GuestStream {
        GuestStream { connection, traffic, reading: Pause::default(), writing: Pause::default(), _dropped: None }
    }

    /// Like `metered`, and closes `dropped` when the stream is dropped.
    pub fn dialled(connection: Arc<Connection>, traffic: Arc<Traffic>, dropped: oneshot::Sender<()>) -> GuestStream {
        GuestStream { _dropped: Some(dropped), ..GuestStream::metered(connection, traffic) }
    }
}

impl Pause {
    fn rest(&mut self, wait: Duration) {
        if wait > Duration::ZERO {
            self.0 = Some(Box::pin(sleep(wait)));
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(context));
            self.0 = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.reading.poll(context));
        let connection = self.connection.clone();
        ready!(std::pin::pin!(connection.readable()).poll(context));
        let received = connection.receive(|bytes| {
            let count = bytes.len().min(room.remaining());
            room.put_slice(&bytes[..count]);
            Ok(count)
        })?;
        let wait = self.traffic.outward(received).map_err(io::Error::other)?;
        self.reading.rest(wait);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.writing.poll(context));
        let connection = self.connection.clone();
        ready!(std::pin::pin!(connection.writable()).poll(context));
        let sent = connection.send(|room| {
            let count = bytes.len().min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        })?;
        let wait = self.traffic.inward(sent);
        self.writing.rest(wait);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.finish();
        Poll::Ready(Ok(()))
    }
}
