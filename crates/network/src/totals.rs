//! Counters of all gateways of a daemon since it started. They outlive the sandboxes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::{EventKind, Verdict};

/// Counters that all gateways of a daemon share. They only increase.
#[derive(Debug, Default)]
pub struct Totals {
    decisions: Mutex<HashMap<(EventKind, Verdict), u64>>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    dns_queries: AtomicU64,
    events_lost: AtomicU64,
}

impl Totals {
    /// The number of times that each decision was made.
    pub fn decisions(&self) -> Vec<(EventKind, Verdict, u64)> {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.iter().map(|((kind, verdict), count)| (*kind, *verdict, *count)).collect()
    }

    /// Bytes from guests.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    /// Bytes to guests.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    pub fn dns_queries(&self) -> u64 {
        self.dns_queries.load(Ordering::Relaxed)
    }

    /// Events that were dropped because of the rate limit, or because no receiver had room.
    pub fn events_lost(&self) -> u64 {
        self.events_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn decided(&self, kind: EventKind, verdict: Verdict) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        *decisions.entry((kind, verdict)).or_default() += 1;
    }

    pub(crate) fn carried(&self, bytes_out: u64, bytes_in: u64) {
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.events_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn asked(&self) {
        self.dns_queries.fetch_add(1, Ordering::Relaxed);
    }
}
