//! What becomes of a datagram: it belongs to an exchange, begins one, or is refused.

use std::sync::Arc;

use super::exchange::{Exchange, event};
use super::far::Far;
use super::{judge, table};
use crate::destination::{Destination, End, Refused};
use crate::event::{Event, EventKind, Verdict};
use crate::flow::Flow;
use crate::frame::{self, Datagram};
use crate::policy::{Refusal, Shown};
use crate::shared::Shared;
use crate::tcp::failure;

/// Takes in a datagram of the guest's. Answers whether it was of use to an exchange that there is.
pub(crate) fn datagram(shared: &Arc<Shared>, datagram: &Datagram<'_>) -> bool {
    let flow = Flow::from(datagram);
    if let Some(exchange) = shared.exchanges.find(&flow) {
        if exchange.still_allowed(shared) {
            return exchange.send(shared, datagram.data);
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
    // A guest that floods is not answered: it would only flood more.
    if why == Refusal::ConnectionRate {
        return shared.journal.sample(event);
    }
    shared.journal.write(event);
    tell(shared, datagram);
}

/// Tells the guest that a datagram did not go on.
fn tell(shared: &Shared, datagram: &Datagram<'_>) {
    if let Some(frame) = frame::unreachable(&shared.ends, datagram.packet) {
        shared.link.send(frame, &shared.journal.counters);
    }
}

/// Judges the first datagram of an exchange.
fn admit(shared: &Shared, datagram: &Datagram<'_>) -> Result<Destination, Refused> {
    if shared.open() >= shared.limits().connections {
        return Err((Refusal::Connections, None));
    }
    if !shared.meters.opening() {
        return Err((Refusal::ConnectionRate, None));
    }
    let (address, port) = (datagram.to, datagram.to_port);
    if address == shared.ends.gateway_address {
        return Err((Refusal::Udp, None));
    }
    Destination::judged(shared, address, port, |rules, names| {
        judge::address(rules, address, port, names)?;
        judge::first(datagram.data)
    })
}

fn begin(shared: &Arc<Shared>, flow: Flow, to: Destination, datagram: &Datagram<'_>) {
    let far = match Far::open(shared, &to) {
        Ok(far) => far,
        Err(error) => {
            shared.journal.write(event(EventKind::Connect, Verdict::Failed(failure(&error)), &to));
            return tell(shared, datagram);
        }
    };
    shared.journal.write(event(EventKind::Connect, Verdict::Allowed, &to));
    if to.peer.is_none() {
        shared.learn(&to, Shown::OtherProtocol);
    }
    let exchange = Arc::new(Exchange::new(shared, flow, far, Some(to)));
    if table::keep(shared, &exchange) {
        exchange.send(shared, datagram.data);
    }
}
