//! One stream of a link: a request, bytes both ways, an outcome.

use std::sync::Arc;

use sandling_protocol::{CHUNK, Event, Outcome, Part, Response, StreamId, ToGuest, WINDOW};
use tokio::sync::{Semaphore, mpsc};

use super::LinkError;
use super::connect::Inner;

/// Credit is given in portions, because each message wakes the guest. Meanwhile the guest can use the rest of its window.
const CREDIT_PORTION: usize = WINDOW / 4;

/// What a stream brings.
#[derive(Debug)]
pub enum Incoming {
    Data { part: Part, offset: u64, bytes: Vec<u8> },
    Event(Event),
    End(Outcome),
}

/// An open stream. Dropping it before its end tells the guest to cancel it.
pub struct Stream {
    pub(super) id: StreamId,
    pub(super) link: Arc<Inner>,
    pub(super) incoming: mpsc::Receiver<Incoming>,
    pub(super) send_window: Arc<Semaphore>,
    /// Bytes that were read and not yet credited to the guest.
    pub(super) owed: usize,
    pub(super) ended: bool,
}

impl Stream {
    /// The next message. After `End` there is none; a link that broke is an error.
    pub async fn next(&mut self) -> Result<Incoming, LinkError> {
        let Some(message) = self.incoming.recv().await else {
            self.ended = true;
            return Err(LinkError::Closed(self.link.reason()));
        };
        match &message {
            Incoming::Data { bytes, .. } => {
                self.owed += bytes.len();
                if self.owed >= CREDIT_PORTION {
                    let owed = std::mem::take(&mut self.owed);
                    self.link.table.consumed(self.id, owed);
                    self.link.post(&ToGuest::Credit { stream: self.id, bytes: owed as u32 }, &[])?;
                }
            }
            Incoming::End(_) => self.ended = true,
            _ => {}
        }
        Ok(message)
    }

    /// Reads to the end, passing data to `sink`, and returns the response.
    pub async fn drain(mut self, mut sink: impl FnMut(Part, Vec<u8>)) -> Result<Response, LinkError> {
        loop {
            match self.next().await? {
                Incoming::Data { part, bytes, .. } => sink(part, bytes),
                Incoming::Event(_) => {}
                Incoming::End(Outcome::Ok(response)) => return Ok(response),
                Incoming::End(Outcome::Failed(failure)) => return Err(failure.into()),
            }
        }
    }

    pub fn id(&self) -> StreamId {
        self.id
    }

    /// A handle that can send while another task reads.
    pub fn sender(&self) -> StreamSender {
        StreamSender { id: self.id, link: self.link.clone(), send_window: self.send_window.clone() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended && self.link.table.forget(self.id) {
            // The link may be closed already.
            let _ = self.link.post(&ToGuest::Cancel { stream: self.id }, &[]);
        }
    }
}

/// Sends a stream's bytes to the guest, waiting for room.
#[derive(Clone)]
pub struct StreamSender {
    id: StreamId,
    link: Arc<Inner>,
    send_window: Arc<Semaphore>,
}

impl StreamSender {
    /// Sends all of `bytes`. Fails when the stream has ended.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), LinkError> {
        for chunk in bytes.chunks(CHUNK) {
            let permits = self.send_window.acquire_many(chunk.len() as u32).await;
            permits.map_err(|_| LinkError::Closed("the stream has ended".to_owned()))?.forget();
            self.link.post(&ToGuest::Data { stream: self.id }, chunk)?;
        }
        Ok(())
    }

    pub fn finish(&self) -> Result<(), LinkError> {
        self.link.post(&ToGuest::Finish { stream: self.id }, &[])
    }
}
