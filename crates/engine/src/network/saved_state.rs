//! What a sandbox's gateway leaves to the next one: in memory through sleep, in the store through a restart.

use sandling_network::{GatewayHandle, Stats};
use sandling_wire::CountsView;

use super::shared::Shared;
use crate::model::{SandboxInfo, SavedState};

impl SavedState {
    /// The same after another gateway.
    pub(super) fn after(&self, gateway: &GatewayHandle) -> Self {
        let counts = add(self.counts, &gateway.stats());
        Self { pins: gateway.pins(), counts, learned: gateway.learned() }
    }

    /// How many entries it has.
    pub(super) fn size(&self) -> usize {
        self.pins.len() + self.learned.count()
    }
}

/// What earlier gateways and this one counted.
pub(super) fn add(past: CountsView, stats: &Stats) -> CountsView {
    CountsView {
        sent_bytes: past.sent_bytes + stats.bytes_out,
        received_bytes: past.received_bytes + stats.bytes_in,
        connections_open: stats.connections_open,
        connections_allowed: past.connections_allowed + stats.connections_allowed,
        connections_refused: past.connections_refused + stats.connections_refused,
        dns_queries: past.dns_queries + stats.dns_queries,
        dns_refused: past.dns_refused + stats.dns_refused,
        requests_refused: past.requests_refused + stats.requests_refused,
        packets_refused: past.packets_refused + stats.packets_refused,
        events_lost: past.events_lost + stats.events_lost,
    }
}

impl Shared {
    /// What is written down for a sandbox's next gateway. One that has nothing pinned yet has its parent's pins; what it
    /// sends and learns is its own from the start.
    pub(super) fn saved_state_of(&self, info: &SandboxInfo) -> SavedState {
        let stored = |id: &str| {
            self.store.gateway_state(id).unwrap_or_else(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not read the saved state of a gateway; its pins and counts start anew"
                );
                SavedState::default()
            })
        };
        let mut saved = stored(info.id.as_str());
        if let Some(parent) = info.parent.as_ref().filter(|_| saved.pins.is_empty()) {
            saved.pins = stored(parent.as_str()).pins;
        }
        saved
    }
}
