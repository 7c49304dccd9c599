//! A full disk of the host: a machine that cannot write stands still, loses nothing, and resumes when there is room.
//!
//! QEMU stops a machine whose disk file cannot grow, and keeps the write. This module tells QEMU to try again every few
//! seconds. Meanwhile the sandbox cannot be used, and its silence does not count as death.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sandling_vmm::qmp::Event;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use crate::machine::Live;
use crate::sandbox::Phase;

/// How often a machine tries again.
const RETRY_EVERY: Duration = Duration::from_secs(2);
/// One that still cannot write is stopped again within this time.
const STOPPED_WITHIN: Duration = Duration::from_millis(500);

/// Looks after a machine until it ends, and says in `stalled` whether it stands still. `note` is told of each change.
pub(crate) fn watch(
    live: &Arc<Live>,
    phase: watch::Receiver<Phase>,
    stalled: Arc<watch::Sender<bool>>,
    note: impl Fn(&str) + Send + 'static,
) {
    stalled.send_replace(false);
    let events = live.machine.qmp().events();
    tokio::spawn(Watcher { live: Arc::downgrade(live), phase, events, stalled }.run(note));
}

struct Watcher {
    live: Weak<Live>,
    phase: watch::Receiver<Phase>,
    events: Receiver<Event>,
    stalled: Arc<watch::Sender<bool>>,
}

/// What another try came to.
enum Tried {
    StandsStill,
    GoesOn,
    Gone,
}

impl Watcher {
    async fn run(mut self, note: impl Fn(&str)) {
        while self.stopped().await {
            self.stalled.send_replace(true);
            note("disk_full");
            loop {
                match self.retry().await {
                    Tried::StandsStill => {}
                    Tried::GoesOn => break,
                    Tried::Gone => return,
                }
            }
            self.stalled.send_replace(false);
            note("disk_free");
        }
    }

    /// Waits until QEMU stops the machine because it cannot write. False when the machine is gone.
    async fn stopped(&mut self) -> bool {
        loop {
            match self.events.recv().await {
                Ok(event) if is_stop(&event) => return self.hold(true),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return false,
            }
        }
    }

    async fn retry(&mut self) -> Tried {
        tokio::time::sleep(RETRY_EVERY).await;
        // A paused machine waits for its resume.
        if matches!(*self.phase.borrow(), Phase::Paused(_)) {
            return Tried::StandsStill;
        }
        let Some(live) = self.live.upgrade() else { return Tried::Gone };
        // Every write that failed has been told of; only those from here on count.
        self.events = self.events.resubscribe();
        if live.machine.cont().await.is_err() {
            let gone = live.machine.died().borrow().is_some();
            return if gone { Tried::Gone } else { Tried::StandsStill };
        }
        drop(live);
        match tokio::time::timeout(STOPPED_WITHIN, self.stopped()).await {
            Ok(true) => Tried::StandsStill,
            Ok(false) => Tried::Gone,
            Err(_) if self.hold(false) => Tried::GoesOn,
            Err(_) => Tried::Gone,
        }
    }

    fn hold(&self, held: bool) -> bool {
        let live = self.live.upgrade();
        live.inspect(|live| live.link.hold(held)).is_some()
    }
}

fn is_stop(event: &Event) -> bool {
    event.name == "BLOCK_IO_ERROR" && event.data["action"] == "stop"
}
