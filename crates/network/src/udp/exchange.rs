//! One exchange of datagrams from its first to its last. It has no end of its own: it is over when nothing has passed
//! for a while, or when the policy no longer allows it.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::far::Far;
use super::judge;
use crate::destination::{Destination, End};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::flow::Flow;
use crate::frame::{self, UDP_HEADERS};
use crate::policy::{Refusal, Rules};
use crate::shared::{Passage, Shared};
use crate::traffic::Traffic;

/// An exchange without a datagram either way for so long is over. Whoever keeps one open says something at least every
/// half minute, because other networks forget them as soon.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams between two looks at what else there is to do.
const AT_ONCE: usize = 32;

/// One exchange of datagrams.
pub(crate) struct Exchange {
    pub flow: Flow,
    far: Far,
    /// Where it goes, and why it may. Nothing, if a peer began it.
    to: Option<Destination>,
    traffic: Arc<Traffic>,
    /// The rules, as far as it was judged by them.
    rules: Mutex<watch::Receiver<Arc<Rules>>>,
    end: Mutex<Option<End>>,
    ended: Notify,
}

impl Exchange {
    pub fn new(shared: &Arc<Shared>, flow: Flow, far: Far, to: Option<Destination>) -> Exchange {
        let (mut rules, traffic) = (shared.rules.subscribe(), Traffic::new(shared));
        // What changed since its first datagram was judged is not announced any more.
        rules.mark_changed();
        Exchange { flow, far, to, traffic, rules: Mutex::new(rules), end: Mutex::default(), ended: Notify::new() }
    }

    /// Whether a peer began it.
    pub fn was_dialled(&self) -> bool {
        self.to.is_none()
    }

    /// Passes on what the guest sent. Answers whether that was of use.
    pub fn send(&self, shared: &Shared, data: &[u8]) -> bool {
        match self.traffic.datagram_outward(data.len()) {
            Ok(Passage::Now) => {}
            Ok(Passage::Lost) => return false,
            Err(why) => {
                shared.exchanges.end(self, End::Refused(why));
                return false;
            }
        }
        match self.far.send(data) {
            Ok(()) => true,
            Err(error) => {
                self.failed(shared, error.kind());
                false
            }
        }
    }

    /// What the far side said of an earlier datagram. Only that nobody is there is told to the guest.
    fn failed(&self, shared: &Shared, kind: ErrorKind) {
        if kind == ErrorKind::ConnectionRefused {
            shared.link.send(frame::nobody_there(&shared.ends, &self.flow), &shared.journal.counters);
        }
    }

    /// Whether it may still be. It is judged again if anything changed since it was asked last.
    pub fn still_allowed(&self, shared: &Shared) -> bool {
        let Some(Destination { address, port, names, peer, .. }) = &self.to else { return true };
        if peer.is_some() {
            return shared.peers.peer(*address) == *peer;
        }
        // Whoever asks for the rules finds out whether an address has become the host's own.
        drop(shared.rules());
        // Held to the end, so that nobody passes while another still judges.
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !rules.has_changed().unwrap_or(true) {
            return true;
        }
        let allowed = judge::address(&rules.borrow_and_update(), *address, *port, names).is_ok();
        if !allowed {
            // Whoever asks next, before it has ended, hears the same.
            rules.mark_changed();
        }
        allowed
    }

    /// Lets it end, the first time for this reason.
    pub fn end(&self, how: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(how);
        self.ended.notify_one();
    }

    /// Brings answers to the guest until it is over.
    pub async fn run(&self, shared: &Shared) {
        let end = tokio::select! {
            biased;
            () = self.ended.notified() => End::Failed(Failure::Reset),
            () = self.revoked(shared) => End::Refused(Refusal::PolicyChanged),
            () = self.traffic.idle(IDLE) => End::Done,
            () = self.receive(shared) => End::Failed(Failure::Reset),
        };
        shared.exchanges.end(self, end);
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(end);
        if let Some(to) = &self.to {
            let mut event = event(EventKind::Close, end.into(), to);
            (event.bytes_out, event.bytes_in) = self.traffic.counted();
            shared.journal.write(event);
        }
    }

    async fn revoked(&self, shared: &Shared) {
        let mut rules = shared.rules.subscribe();
        while self.still_allowed(shared) && rules.changed().await.is_ok() {}
    }

    async fn receive(&self, shared: &Shared) {
        let largest = usize::from(shared.ends.mtu) - UDP_HEADERS;
        loop {
            // While the guest takes nothing, and while it has had its share, the kernel keeps what comes, and drops
            // what is too much.
            shared.link.room().await;
            if self.far.readable().await.is_err() {
                return;
            }
            let wait = self.receive_some(shared, largest);
            if wait > Duration::ZERO {
                tokio::time::sleep(wait).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Brings what is there to the guest; answers how long to rest before the next.
    fn receive_some(&self, shared: &Shared, largest: usize) -> Duration {
        // One more, so that what is too long is seen as such.
        let mut room = vec![0; largest + 1];
        for _ in 0..AT_ONCE {
            match self.far.receive(&mut room) {
                Ok(count) if count <= largest => {
                    let wait = self.traffic.datagram_inward(count);
                    self.deliver(shared, &room[..count]);
                    if wait > Duration::ZERO || shared.link.is_full() {
                        return wait;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.failed(shared, error.kind()),
            }
        }
        Duration::ZERO
    }

    fn deliver(&self, shared: &Shared, data: &[u8]) {
        let Flow { guest_port, address, port } = self.flow;
        let (from, to) = ((address, port), (shared.ends.guest_address, guest_port));
        shared.link.send(frame::udp(&shared.ends, from, to, data), &shared.journal.counters);
    }
}

/// An event about an exchange that goes there.
pub(super) fn event(kind: EventKind, verdict: Verdict, to: &Destination) -> Event {
    Event::new(kind, verdict).of_datagrams().of_name(to.only_name()).at_address(to.address, Some(to.port))
}
