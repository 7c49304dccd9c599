//! Waiting for the pages of a machine's topmost layer of memory.

use tokio::sync::watch;

/// Tells when the pages of a snapshot are on the disk and its row is written, or that they never will be.
#[derive(Debug, Clone)]
pub(crate) struct PagesWritten(watch::Receiver<bool>);

/// Held while the pages are written. If it is dropped before [`WritingPages::done`], they never will be.
#[derive(Debug)]
pub(crate) struct WritingPages(watch::Sender<bool>);

impl WritingPages {
    pub(crate) fn begin() -> (Self, PagesWritten) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), PagesWritten(receiver))
    }

    pub(crate) fn done(self) {
        self.0.send_replace(true);
    }
}

impl PagesWritten {
    /// Returns whether they have been written.
    pub(crate) async fn wait(mut self) -> bool {
        self.0.wait_for(|written| *written).await.is_ok()
    }
}
