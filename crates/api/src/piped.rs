//! Streams between HTTP bodies and code that blocks, never completely in memory.

use std::io::{self, Read, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::task::{JoinError, spawn_blocking};

/// Parts that are in transit.
const QUEUED_PARTS: usize = 8;
/// A body of which nothing arrives for this long is dropped.
const SENDER_STALL_LIMIT: Duration = Duration::from_secs(60);
/// A body of which nothing is read for this long is aborted. Until then it occupies a thread.
const READER_STALL_LIMIT: Duration = Duration::from_secs(300);
const PART_BYTES: usize = 256 * 1024;

/// A body that has failed before its first byte. The log says why.
#[derive(Debug)]
pub(crate) struct Failed;

/// The body that a function writes. A failure later aborts the connection, so that the receiver does not mistake a part for
/// the whole.
pub(crate) async fn outgoing<F>(write: F) -> Result<Body, Failed>
where
    F: FnOnce(&mut io::BufWriter<Outgoing>) -> io::Result<()> + Send + 'static,
{
    outgoing_within(READER_STALL_LIMIT, write).await
}

async fn outgoing_within<F>(stall_limit: Duration, write: F) -> Result<Body, Failed>
where
    F: FnOnce(&mut io::BufWriter<Outgoing>) -> io::Result<()> + Send + 'static,
{
    let (parts, mut receiving) = mpsc::channel(QUEUED_PARTS);
    let outgoing = Outgoing { parts, stall_limit, runtime: Handle::current() };
    spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PART_BYTES, outgoing);
        let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| out.get_ref().send(None));
        if let Err(error) = written {
            tracing::warn!(error = &error as &dyn std::error::Error, "a stream was not written to its end");
        }
        // Otherwise it would write, after a failure, what it still holds.
        let _ = out.into_parts();
    });
    let first = match receiving.recv().await {
        Some(Some(first)) => first,
        Some(None) => return Ok(Body::empty()),
        None => return Err(Failed),
    };
    let rest = stream::unfold(receiving, |mut receiving| async move {
        match receiving.recv().await {
            Some(Some(part)) => Some((Ok(part), receiving)),
            Some(None) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::UnexpectedEof)), receiving)),
        }
    });
    Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
}

/// What a function makes of a body that it reads.
pub(crate) async fn incoming<T, F>(body: Body, read: F) -> Result<T, JoinError>
where
    F: FnOnce(Incoming) -> T + Send + 'static,
    T: Send + 'static,
{
    let (parts, receiving) = mpsc::channel(QUEUED_PARTS);
    let reading = spawn_blocking(move || read(Incoming { parts: receiving, part: Bytes::new(), ended: false }));
    feed(body, parts).await;
    reading.await
}

/// Forwards a body while the reader accepts it. An aborted body has no end mark, which the reader detects.
async fn feed(mut body: Body, parts: mpsc::Sender<Option<Bytes>>) {
    while let Ok(frame) = tokio::time::timeout(SENDER_STALL_LIMIT, body.frame()).await {
        match frame {
            None => return drop(parts.send(None).await),
            Some(Err(_)) => return,
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if parts.send(Some(bytes)).await.is_err() {
                    // The reader has refused it. The rest is read, up to a limit, so that the client gets the response.
                    return crate::extract::discard(&mut body).await;
                }
            }
        }
    }
}

pub(crate) struct Outgoing {
    /// `None` marks the end.
    parts: mpsc::Sender<Option<Bytes>>,
    stall_limit: Duration,
    runtime: Handle,
}

impl Outgoing {
    fn send(&self, part: Option<Bytes>) -> io::Result<()> {
        self.runtime.block_on(self.parts.send_timeout(part, self.stall_limit)).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => io::ErrorKind::TimedOut.into(),
            SendTimeoutError::Closed(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(Some(Bytes::copy_from_slice(bytes)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn collected(body: Body) -> Result<Bytes, axum::Error> {
        Ok(body.collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn a_body_has_all_that_was_written() {
        let body = outgoing(|out| io::copy(&mut io::repeat(7).take(3_000_000), out).map(drop)).await.unwrap();
        assert_eq!(collected(body).await.unwrap().len(), 3_000_000);
        let empty = outgoing(|_| Ok(())).await.unwrap();
        assert!(collected(empty).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_body_whose_writer_fails_has_no_end() {
        assert!(outgoing(|_| Err(io::Error::other("no file"))).await.is_err());
        let late = outgoing(|out| {
            out.write_all(&[7; 1_000_000])?;
            Err(io::Error::other("no file"))
        });
        assert!(collected(late.await.unwrap()).await.is_err());
    }

    #[tokio::test]
    async fn a_body_that_nobody_reads_ends_its_writer() {
        let (ended, why) = tokio::sync::oneshot::channel();
        let write = move |out: &mut io::BufWriter<Outgoing>| {
            let error = io::copy(&mut io::repeat(7), out).expect_err("it is endless");
            let _ = ended.send(error.kind());
            Err(error)
        };
        let body = outgoing_within(Duration::from_millis(10), write).await.unwrap();
        assert_eq!(why.await.unwrap(), io::ErrorKind::TimedOut);
        assert!(collected(body).await.is_err(), "what it has is not the whole");
    }
}
