//! All exchanges of one guest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::exchange::Exchange;
use crate::destination::End;
use crate::event::Failure;
use crate::flow::Flow;

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

    /// Adds an exchange, unless the flow is in use or the table is closed.
    pub fn insert(&self, exchange: &Arc<Exchange>) -> bool {
        let mut exchanges = self.lock();
        if exchanges.closed || exchanges.by_flow.contains_key(&exchange.flow) {
            return false;
        }
        exchanges.by_flow.insert(exchange.flow, exchange.clone());
        true
    }

    /// Ends an exchange and removes it.
    pub fn end(&self, exchange: &Exchange, how: End) {
        exchange.end(how);
        let exchanges = &mut self.lock().by_flow;
        if exchanges.get(&exchange.flow).is_some_and(|known| std::ptr::eq(&**known, exchange)) {
            exchanges.remove(&exchange.flow);
        }
    }

    /// Ends all exchanges.
    pub fn reset(&self) {
        self.reset_those(|_| true);
    }

    /// Ends all exchanges, and prevents new ones.
    pub fn close(&self) {
        self.lock().closed = true;
        self.reset();
    }

    pub fn have_dialled(&self) -> bool {
        self.lock().by_flow.values().any(|exchange| exchange.was_dialled())
    }

    /// Ends the exchanges that peers started.
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
