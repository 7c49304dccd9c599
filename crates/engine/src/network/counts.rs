//! What went through a sandbox's gateways.

use sandling_network::Stats;
use serde::{Deserialize, Serialize};

/// What went through a sandbox's gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkCounts {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Those end with their gateway.
    #[serde(skip)]
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    pub dns_queries: u64,
    pub dns_refused: u64,
    pub requests_refused: u64,
    pub packets_refused: u64,
    /// Decisions that were told to nobody, because there were too many.
    pub events_lost: u64,
}

impl NetworkCounts {
    /// These and what another gateway counted.
    pub(super) fn and(self, stats: &Stats) -> Self {
        Self {
            sent_bytes: self.sent_bytes + stats.bytes_out,
            received_bytes: self.received_bytes + stats.bytes_in,
            connections_open: stats.connections_open,
            connections_allowed: self.connections_allowed + stats.connections_allowed,
            connections_refused: self.connections_refused + stats.connections_refused,
            dns_queries: self.dns_queries + stats.dns_queries,
            dns_refused: self.dns_refused + stats.dns_refused,
            requests_refused: self.requests_refused + stats.requests_refused,
            packets_refused: self.packets_refused + stats.packets_refused,
            events_lost: self.events_lost + stats.events_lost,
        }
    }
}
