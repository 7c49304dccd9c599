//! Streams between HTTP bodies and code that blocks, never completely in memory.

use std::io::{self, Read, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

/// Parts that are in transit.
const UNDER_WAY: usize = 8;
/// A body without progress for this long is dropped.
const STILL_FOR: Duration = Duration::from_secs(60);
const PART: usize = 256 * 1024;

/// A body that has failed before its first byte. The log says why.
#[derive(Debug)]
pub(crate) struct Failed;

/// The body that a function writes. A failure later aborts the connection, so that the receiver does not mistake a part for
/// the whole.
pub(crate) async fn outgoing<F>(write: F) -> Result<Body, Failed>
where
    F: FnOnce(&mut io::BufWriter<Outgoing>) -> io::Result<()> + Send + 'static,
{
    let (parts, mut receiving) = mpsc::channel(UNDER_WAY);
    let writing = spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PART, Outgoing { parts: parts.clone() });
        if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a stream was not written to its end");
            let _ = parts.blocking_send(Err(error));
        }
    });
    let Some(Ok(first)) = receiving.recv().await else {
        let _ = writing.await;
        return Err(Failed);
    };
    let first = futures_util::stream::iter([Ok(first)]);
    let rest = futures_util::stream::unfold(receiving, |mut receiving| async move {
        receiving.recv().await.map(|part| (part, receiving))
    });
    Ok(Body::from_stream(futures_util::StreamExt::chain(first, rest)))
}

/// What a function makes of a body that it reads.
pub(crate) async fn incoming<T, F>(body: Body, read: F) -> Result<T, JoinError>
where
    F: FnOnce(Incoming) -> T + Send + 'static,
    T: Send + 'static,
{
    let (parts, receiving) = mpsc::channel(UNDER_WAY);
    let reading = spawn_blocking(move || read(Incoming { parts: receiving, part: Bytes::new(), ended: false }));
    feed(body, parts).await;
    reading.await
}

/// Forwards a body while the receiver accepts it. An aborted body has no end mark, which the receiver detects.
async fn feed(mut body: Body, parts: mpsc::Sender<Option<Bytes>>) {
    while let Ok(frame) = tokio::time::timeout(STILL_FOR, body.frame()).await {
        match frame {
            None => return drop(parts.send(None).await),
            Some(Err(_)) => return,
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if parts.send(Some(bytes)).await.is_err() {
                    // The import was refused. The rest is read, up to a limit, so that the client gets the response.
                    return crate::extract::discard(&mut body).await;
                }
            }
        }
    }
}

pub(crate) struct Outgoing {
    parts: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.parts.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Incoming {
    parts: mpsc::Receiver<Option<Bytes>>,
    part: Bytes,
    ended: bool,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && !self.ended {
            match self.parts.blocking_recv() {
                Some(Some(part)) => self.part = part,
                Some(None) => self.ended = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}
