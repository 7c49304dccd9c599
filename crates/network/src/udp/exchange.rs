//! One exchange of datagrams between a port of the guest and a port of another host. UDP has no end, so an exchange
//! ends when it is idle, or when the policy no longer allows it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use super::remote_end::RemoteEnd;
use crate::destination::{Destination, End};
use crate::flow::Flow;
use crate::policy::Rules;
use crate::traffic::Traffic;

/// One exchange of datagrams.
pub(crate) struct Exchange {
    pub flow: Flow,
    pub remote: RemoteEnd,
    /// Its destination. None if a peer started it.
    pub to: Option<Destination>,
    pub traffic: Arc<Traffic>,
    /// The rules it was last judged by.
    pub rules: Mutex<watch::Receiver<Arc<Rules>>>,
    end: Mutex<Option<End>>,
    ended: Notify,
}

impl Exchange {
    pub fn new(
        flow: Flow,
        remote: RemoteEnd,
        to: Option<Destination>,
        traffic: Arc<Traffic>,
        mut rules: watch::Receiver<Arc<Rules>>,
    ) -> Exchange {
        // A change between the first judgement and the subscription is not announced, so the exchange is judged again.
        rules.mark_changed();
        Exchange { flow, remote, to, traffic, rules: Mutex::new(rules), end: Mutex::default(), ended: Notify::new() }
    }

    /// Whether a peer started it.
    pub fn was_dialled(&self) -> bool {
        self.to.is_none()
    }

    /// Ends the exchange. The first reason counts.
    pub fn end(&self, how: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(how);
        self.ended.notify_one();
    }

    /// Waits until `end` is called.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    /// The reason of the first call of `end`.
    pub fn why_ended(&self) -> Option<End> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
