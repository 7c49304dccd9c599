//! Handles a datagram: it belongs to an exchange, starts one, or is refused.

use std::sync::Arc;

use super::carry::{event, send, start, still_allowed};
use crate::destination::{Destination, End, Refused, failure};
use crate::event::{Event, EventKind, Verdict};
use crate::flow::Flow;
use crate::frame::{self, Datagram};
use crate::policy::{Refusal, Shown};
use crate::shared::Shared;
use crate::tcp::host_buffer;
use crate::udp::{Exchange, RemoteEnd, judge};

/// Handles a datagram of the guest. Returns whether it was useful to an existing exchange.
pub(crate) fn datagram(shared: &Arc<Shared>, datagram: &Datagram<'_>) -> bool {
    let flow = Flow::from(datagram);
    if let Some(exchange) = shared.exchanges.find(&flow) {
        if still_allowed(shared, &exchange) {
            return send(shared, &exchange, datagram.data);
        }
        shared.exchanges.end(&exchange, End::Refused(Refusal::PolicyChanged));
    }
    match admit(shared, datagram) {
        Ok(to) => begin(shared, flow, to, datagram),
        Err(refused) => refuse(shared, refused, datagram),
    }
    false
}

fn refuse(shared: &Shared, (why, name): Refused, datagram: &Datagram<'_>) {
    let event = Event::new(EventKind::Connect, Verdict::Refused(why)).of_datagrams().of_name(name);
    let event = event.at_address(datagram.to, Some(datagram.to_port));
    // A guest that floods gets no reply, because a reply would only cause more packets.
    if why == Refusal::ConnectionRate {
        return shared.journal.sample(event);
    }
    shared.journal.write(event);
    tell(shared, datagram);
}

/// Tells the guest that a datagram was not forwarded.
fn tell(shared: &Shared, datagram: &Datagram<'_>) {
    if let Some(frame) = frame::unreachable(&shared.link.ends, datagram.packet) {
        shared.link.send(frame);
    }
}

/// Judges the first datagram of an exchange.
fn admit(shared: &Shared, datagram: &Datagram<'_>) -> Result<Destination, Refused> {
    if shared.open() >= shared.meters.limits().connections {
        return Err((Refusal::Connections, None));
    }
    if !shared.meters.opening() {
        return Err((Refusal::ConnectionRate, None));
    }
    let (address, port) = (datagram.to, datagram.to_port);
    if address == shared.link.ends.gateway_address {
        return Err((Refusal::Udp, None));
    }
    shared.destination(address, port, |rules, names| {
        judge::address(rules, address, port, names)?;
        judge::first(datagram.data)
    })
}

fn begin(shared: &Arc<Shared>, flow: Flow, to: Destination, datagram: &Datagram<'_>) {
    let remote = match RemoteEnd::open(&shared.peers, &to, host_buffer(shared.open())) {
        Ok(remote) => remote,
        Err(error) => {
            shared.journal.write(event(EventKind::Connect, Verdict::Failed(failure(&error)), &to));
            return tell(shared, datagram);
        }
    };
    shared.journal.write(event(EventKind::Connect, Verdict::Allowed, &to));
    if to.peer.is_none() {
        shared.learn(&to, Shown::OtherProtocol);
    }
    let exchange = Arc::new(Exchange::new(flow, remote, Some(to), shared.traffic(), shared.rules.subscribe()));
    if start(shared, &exchange) {
        send(shared, &exchange, datagram.data);
    }
}
