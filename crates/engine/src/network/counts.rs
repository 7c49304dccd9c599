//! What went through a sandbox's gateways.

use crate::model::NetworkCounts;
use sandling_network::Stats;

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
