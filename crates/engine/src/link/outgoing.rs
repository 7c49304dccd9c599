//! The queue of messages to a guest. Senders do not wait, but the queue is bounded.
//!
//! Senders wait for credits, so the queue is usually short. A compromised guest may keep requesting answers and read none
//! of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

/// Room for the windows of hundreds of streams.
const MOST: usize = 64 * 1024 * 1024;

pub(super) enum NotQueued {
    Full,
    Closed,
}

/// The senders' side.
pub(super) struct Outgoing {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// The side of the one task that writes.
pub(super) struct Queue {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

pub(super) fn queue() -> (Outgoing, Queue) {
    let (sender, frames) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outgoing { frames: sender, waiting: waiting.clone() }, Queue { frames, waiting })
}

impl Outgoing {
    pub(super) fn push(&self, frame: Vec<u8>) -> Result<(), NotQueued> {
        if self.waiting.fetch_add(frame.len(), Ordering::Relaxed) > MOST {
            return Err(NotQueued::Full);
        }
        self.frames.send(frame).map_err(|_| NotQueued::Closed)
    }
}

impl Queue {
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.recv().await?;
        self.waiting.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_that_is_not_emptied_fills_up() {
        let (outgoing, mut queue) = queue();
        let frame = || vec![0; MOST / 4];
        let queued = (0..100).take_while(|_| outgoing.push(frame()).is_ok()).count();
        assert_eq!(queued, 5);
        assert!(matches!(outgoing.push(frame()), Err(NotQueued::Full)));
        drop(outgoing);
        for _ in 0..queued {
            assert_eq!(queue.next().await.map(|frame| frame.len()), Some(MOST / 4));
        }
        assert!(queue.next().await.is_none());
    }

    #[tokio::test]
    async fn a_queue_that_is_emptied_takes_any_amount() {
        let (outgoing, mut queue) = queue();
        for _ in 0..12 {
            assert!(outgoing.push(vec![0; MOST / 2]).is_ok());
            assert!(queue.next().await.is_some());
        }
    }
}
