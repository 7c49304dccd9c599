//! A full disk of the host: a machine that cannot write stands still, loses nothing, and resumes when there is room.
//!
//! QEMU stops a machine whose disk file cannot grow, and keeps the write. This module tells QEMU to try again every few
//! seconds. It also stops a machine that writes beyond its reservation while the host is short of space
//! ([`DiskSpace`]). Meanwhile the sandbox cannot be used, and its silence does not count as death.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sandling_vmm::qmp::Event;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::{mpsc, watch};

use crate::disk_space::DiskSpace;
use crate::lifecycle::Request;
use crate::machine::Live;
use crate::model::SandboxId;
use crate::sandbox::Phase;

/// How often a machine tries again.
const RETRY_EVERY: Duration = Duration::from_secs(2);
/// One that still cannot write is stopped again within this time.
const STOPPED_WITHIN: Duration = Duration::from_millis(500);

/// Looks after a machine until it ends, and requests that its sandbox stalls or no longer does.
pub(super) fn watch(
    live: &Arc<Live>,
    phase: watch::Receiver<Phase>,
    disk: &DiskSpace,
    id: &SandboxId,
) -> mpsc::Receiver<Request> {
    let (requests, requested) = mpsc::channel(1);
    let events = live.machine.qmp().events();
    let (stopped, id) = (disk.standing_still(), id.clone());
    tokio::spawn(Watcher { live: Arc::downgrade(live), phase, events, stopped, id, requests }.run());
    requested
}

struct Watcher {
    live: Weak<Live>,
    phase: watch::Receiver<Phase>,
    events: Receiver<Event>,
    /// The sandboxes that must stand still, although they could write.
    stopped: watch::Receiver<BTreeSet<SandboxId>>,
    id: SandboxId,
    requests: mpsc::Sender<Request>,
}

/// What another try came to.
enum Tried {
    StandsStill,
    GoesOn,
    Gone,
}

impl Watcher {
    async fn run(mut self) {
        let mut stands_still = false;
        loop {
            stands_still = match if stands_still { self.retry().await } else { self.stopped().await } {
                Tried::StandsStill => true,
                Tried::GoesOn => false,
                Tried::Gone => return,
            };
            // Also after every try: the sandbox may have been paused and resumed since.
            if self.requests.send(if stands_still { Request::Stall } else { Request::Unstall }).await.is_err() {
                return;
            }
        }
    }

    /// Waits until QEMU stops the machine because it cannot write, or until it must stand still.
    async fn stopped(&mut self) -> Tried {
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Ok(event) if is_stop(&event) => return self.hold(true),
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Tried::Gone,
                },
                () = named(&mut self.stopped, &self.id) => {
                    if !self.is_paused() {
                        return self.stop().await;
                    }
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                () = let_go(&mut self.phase) => return Tried::Gone,
            }
        }
    }

    fn is_paused(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Paused(_))
    }

    fn must_stand_still(&self) -> bool {
        self.stopped.borrow().contains(&self.id)
    }

    async fn stop(&self) -> Tried {
        let Some(live) = self.live.upgrade() else { return Tried::Gone };
        live.link.hold(true);
        if live.machine.stop().await.is_err() && live.machine.died().borrow().is_some() {
            return Tried::Gone;
        }
        Tried::StandsStill
    }

    async fn retry(&mut self) -> Tried {
        tokio::time::sleep(RETRY_EVERY).await;
        // A paused machine waits for its resume.
        if self.is_paused() {
            return Tried::StandsStill;
        }
        if self.must_stand_still() {
            // Again: a save lets the machine run afterwards.
            return self.stop().await;
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
            Ok(stopped) => stopped,
            Err(_) => self.hold(false),
        }
    }

    fn hold(&self, held: bool) -> Tried {
        let Some(live) = self.live.upgrade() else { return Tried::Gone };
        live.link.hold(held);
        if held { Tried::StandsStill } else { Tried::GoesOn }
    }
}

/// Waits until the sandbox's task has ended. The phase that it showed last holds the machine's connections open, and the
/// next engine could not reach the guest.
async fn let_go(phase: &mut watch::Receiver<Phase>) {
    while phase.changed().await.is_ok() {}
}

/// Waits until the set contains the sandbox.
async fn named(stopped: &mut watch::Receiver<BTreeSet<SandboxId>>, id: &SandboxId) {
    if stopped.wait_for(|stopped| stopped.contains(id)).await.is_err() {
        std::future::pending().await
    }
}

fn is_stop(event: &Event) -> bool {
    event.name == "BLOCK_IO_ERROR" && event.data["action"] == "stop"
}
