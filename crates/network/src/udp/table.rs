//! All exchanges of one guest, by its port and the other end's address and port.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::exchange::Exchange;
use crate::destination::End;
use crate::event::Failure;
use crate::flow::Flow;
use crate::shared::Shared;

/// All exchanges of one guest.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    by_flow: HashMap<Flow, Arc<Exchange>>,
    closed: bool,
}

impl Exchanges {
    pub fn count(&self) -> usize {
        self.lock().by_flow.len()
    }

    pub fn find(&self, flow: &Flow) -> Option<Arc<Exchange>> {
        self.lock().by_flow.get(flow).cloned()
    }

    /// Ends an exchange: none of the guest's datagrams belongs to it from now on.
    pub fn end(&self, exchange: &Exchange, how: End) {
        exchange.end(how);
        let exchanges = &mut self.lock().by_flow;
        if exchanges.get(&exchange.flow).is_some_and(|known| std::ptr::eq(&**known, exchange)) {
            exchanges.remove(&exchange.flow);
        }
    }

    /// Ends all of them.
    pub fn reset(&self) {
        self.reset_those(|_| true);
    }

    /// Ends all of them, and lets none begin any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.reset();
    }

    pub fn have_dialled(&self) -> bool {
        self.lock().by_flow.values().any(|exchange| exchange.was_dialled())
    }

    /// Ends those that peers began.
    pub fn reset_dialled(&self) {
        self.reset_those(Exchange::was_dialled);
    }

    fn reset_those(&self, chosen: impl Fn(&Exchange) -> bool) {
        let ended: Vec<_> = self.lock().by_flow.extract_if(|_, exchange| chosen(exchange)).collect();
        for (_, exchange) in ended {
            exchange.end(End::Failed(Failure::Reset));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps an exchange until it is over; false, if there is one between these ends or there may be no more.
pub(super) fn keep(shared: &Arc<Shared>, exchange: &Arc<Exchange>) -> bool {
    {
        let mut exchanges = shared.exchanges.lock();
        if exchanges.closed || exchanges.by_flow.contains_key(&exchange.flow) {
            return false;
        }
        exchanges.by_flow.insert(exchange.flow, exchange.clone());
    }
    let (shared, exchange) = (shared.clone(), exchange.clone());
    tokio::spawn(async move { exchange.run(&shared).await });
    true
}
