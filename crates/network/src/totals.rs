//! What all gateways of a daemon decided and carried, since it started: figures that no sandbox's end takes away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::{EventKind, Verdict};

/// What all gateways that share it decided and carried. It only rises.
#[derive(Debug, Default)]
pub struct Totals {
    decisions: Mutex<HashMap<(EventKind, Verdict), u64>>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    dns_queries: AtomicU64,
    events_lost: AtomicU64,
}

impl Totals {
    /// How often each decision was made.
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

    /// Events that were passed on to nobody, because there were too many.
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
