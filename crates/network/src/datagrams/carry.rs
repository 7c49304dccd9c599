//! Forwards the datagrams of an exchange while the policy allows it.

use std::io::ErrorKind;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::destination::{Destination, End};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::flow::Flow;
use crate::frame::{self, UDP_HEADERS};
use crate::meters::Passage;
use crate::policy::Refusal;
use crate::shared::Shared;
use crate::udp::{Exchange, judge};

/// The idle timeout of an exchange. Programs that keep one open send something at least every half minute, because
/// other networks forget it as soon.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams that are handled before the task yields to others.
const AT_ONCE: usize = 32;

/// Starts an exchange, which runs until it ends. Returns false if the flow is in use or no more exchanges are allowed.
pub(super) fn start(shared: &Arc<Shared>, exchange: &Arc<Exchange>) -> bool {
    if !shared.exchanges.insert(exchange) {
        return false;
    }
    let (shared, exchange) = (shared.clone(), exchange.clone());
    tokio::spawn(async move { run(&shared, &exchange).await });
    true
}

/// Forwards a datagram of the guest. Returns whether it was useful.
pub(super) fn send(shared: &Shared, exchange: &Exchange, data: &[u8]) -> bool {
    match exchange.traffic.datagram_outward(data.len()) {
        Ok(Passage::Now) => {}
        Ok(Passage::Dropped) => return false,
        Err(why) => {
            shared.exchanges.end(exchange, End::Refused(why));
            return false;
        }
    }
    match exchange.remote.send(data) {
        Ok(()) => true,
        Err(error) => {
            failed(shared, exchange, error.kind());
            false
        }
    }
}

/// Handles an error for an earlier datagram. The guest is told only that the port is closed.
fn failed(shared: &Shared, exchange: &Exchange, kind: ErrorKind) {
    if kind == ErrorKind::ConnectionRefused {
        shared.link.send(frame::port_unreachable(&shared.link.ends, &exchange.flow));
    }
}

/// Whether the policy still allows the exchange. Judges it again if the rules have changed.
pub(super) fn still_allowed(shared: &Shared, exchange: &Exchange) -> bool {
    let Some(Destination { address, port, names, peer, .. }) = &exchange.to else { return true };
    if peer.is_some() {
        return shared.peers.peer(*address) == *peer;
    }
    // Getting the rules also refreshes the host's own addresses.
    drop(shared.rules());
    // The lock is held to the end, so that no datagram passes while another task judges.
    let mut rules = exchange.rules.lock().unwrap_or_else(PoisonError::into_inner);
    if !rules.has_changed().unwrap_or(true) {
        return true;
    }
    let allowed = judge::address(&rules.borrow_and_update(), *address, *port, names).is_ok();
    if !allowed {
        // The next call, before the exchange has ended, must give the same result.
        rules.mark_changed();
    }
    allowed
}

/// Forwards replies to the guest until the exchange ends.
async fn run(shared: &Shared, exchange: &Exchange) {
    let end = tokio::select! {
        biased;
        () = exchange.ended() => End::Failed(Failure::Reset),
        () = revoked(shared, exchange) => End::Refused(Refusal::PolicyChanged),
        () = exchange.traffic.idle(IDLE) => End::Done,
        () = receive(shared, exchange) => End::Failed(Failure::Reset),
    };
    shared.exchanges.end(exchange, end);
    let end = exchange.why_ended().unwrap_or(end);
    if let Some(to) = &exchange.to {
        let mut event = event(EventKind::Close, end.into(), to);
        (event.bytes_out, event.bytes_in) = exchange.traffic.counted();
        shared.journal.write(event);
    }
}

async fn revoked(shared: &Shared, exchange: &Exchange) {
    let mut rules = shared.rules.subscribe();
    while still_allowed(shared, exchange) && rules.changed().await.is_ok() {}
}

async fn receive(shared: &Shared, exchange: &Exchange) {
    let largest = usize::from(shared.link.ends.mtu) - UDP_HEADERS;
    loop {
        // While the guest does not read, or has used its bandwidth, the kernel queues datagrams and drops the excess.
        shared.link.room().await;
        if exchange.remote.readable().await.is_err() {
            return;
        }
        let wait = receive_some(shared, exchange, largest);
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Forwards the datagrams that have arrived. Returns how long to wait before the next.
fn receive_some(shared: &Shared, exchange: &Exchange, largest: usize) -> Duration {
    // One byte more, so that a datagram that is too long is recognized.
    let mut room = vec![0; largest + 1];
    for _ in 0..AT_ONCE {
        match exchange.remote.receive(&mut room) {
            Ok(count) if count <= largest => {
                let wait = exchange.traffic.datagram_inward(count);
                deliver(shared, exchange, &room[..count]);
                if wait > Duration::ZERO || shared.link.is_full() {
                    return wait;
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => failed(shared, exchange, error.kind()),
        }
    }
    Duration::ZERO
}

fn deliver(shared: &Shared, exchange: &Exchange, data: &[u8]) {
    let Flow { guest_port, address, port } = exchange.flow;
    let (from, to) = ((address, port), (shared.link.ends.guest_address, guest_port));
    shared.link.send(frame::udp(&shared.link.ends, from, to, data));
}

/// An event about an exchange with this destination.
pub(super) fn event(kind: EventKind, verdict: Verdict, to: &Destination) -> Event {
    Event::new(kind, verdict).of_datagrams().of_name(to.only_name()).at_address(to.address, Some(to.port))
}
