//! The moment when the server starts to drain.

use tokio::sync::watch;

/// Reached when the server starts to drain. Streams that would never end by themselves wait for it.
#[derive(Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    pub(crate) fn of(sender: &watch::Sender<bool>) -> Self {
        Self(sender.subscribe())
    }

    pub(crate) async fn reached(&mut self) {
        // A dropped sender also means that the server drains.
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}
