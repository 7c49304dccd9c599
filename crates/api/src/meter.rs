//! The server's metrics, in Prometheus' format.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sandling_engine::Engine;
use sandling_network::{Totals, Verdict};
use sandling_service::AuditLog;

use crate::convert::network_events::code;
use crate::convert::sandbox::status;

/// Histogram buckets in seconds, from a quick response to a long command.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// The route's pattern instead of the path, which would create a time series for every id.
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SandboxLabels {
    workspace: String,
    template: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    kind: String,
    verdict: &'static str,
    /// The code that events have; empty for allowed traffic.
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FallbackLabels {
    reason: &'static str,
}

/// Metrics of the gateways, which count by themselves.
#[derive(Default)]
struct NetworkMeter {
    decisions: Family<DecisionLabels, Counter>,
    sent_bytes: Counter,
    received_bytes: Counter,
    dns_queries: Counter,
    events_lost: Counter,
    connections: Gauge,
}

pub(crate) struct Meter {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    sandboxes: Family<SandboxLabels, Gauge>,
    volumes: Gauge,
    volume_bytes: Gauge,
    process_cache_fallbacks: Family<FallbackLabels, Counter>,
    audit_failures: Counter,
    network: NetworkMeter,
    /// Held while reading, because a read clears and recomputes the gauges.
    reading: Mutex<()>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("sandling");
        let requests = Family::default();
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let sandboxes = Family::default();
        let (volumes, volume_bytes) = (Gauge::default(), Gauge::default());
        registry.register("http_requests", "Answered requests", requests.clone());
        registry.register("http_request_seconds", "From a request's head to its answer's", durations.clone());
        registry.register("sandboxes", "Sandboxes that are alive", sandboxes.clone());
        registry.register("volumes", "Volumes there are", volumes.clone());
        registry.register("volume_bytes", "What they take on the host's disk", volume_bytes.clone());
        let process_cache_fallbacks = Family::default();
        let help = "Machines that were restored from device state instead of a cached process";
        registry.register("process_cache_fallbacks", help, process_cache_fallbacks.clone());
        let audit_failures = Counter::default();
        registry.register("audit_failures", "Times that the audit log could not be written", audit_failures.clone());
        let network = NetworkMeter::default();
        network.register(registry.sub_registry_with_prefix("network"));
        let reading = Mutex::default();
        Self {
            registry,
            requests,
            durations,
            sandboxes,
            volumes,
            volume_bytes,
            process_cache_fallbacks,
            audit_failures,
            network,
            reading,
        }
    }

    pub(crate) fn request(&self, method: &Method, route: Option<&str>, status: StatusCode, took: Duration) {
        let route = route.unwrap_or("none").to_owned();
        self.durations.get_or_create(&RouteLabels { route: route.clone() }).observe(took.as_secs_f64());
        // An unknown method must not create a time series.
        let known =
            [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
        let method = if known.contains(method) { method.as_str() } else { "other" }.to_owned();
        self.requests.get_or_create(&RequestLabels { method, route, status: status.as_u16() }).inc();
    }

    /// Renders all metrics with their current values.
    pub(crate) fn read(&self, engine: &Engine, audit: &AuditLog) -> String {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (volumes, volume_bytes) = engine.volumes().totals();
        self.volumes.set(volumes as i64);
        self.volume_bytes.set(volume_bytes as i64);
        self.audit_failures.inc_by(audit.failures().saturating_sub(self.audit_failures.get()));
        self.sandboxes.clear();
        for info in engine.list() {
            let status = status(info.state);
            let (workspace, template) = (info.workspace, info.template);
            self.sandboxes.get_or_create(&SandboxLabels { workspace, template, status }).inc();
        }
        self.process_cache_fallbacks.clear();
        for (reason, count) in engine.machines().process_cache_fallbacks() {
            self.process_cache_fallbacks.get_or_create(&FallbackLabels { reason: reason.name() }).inc_by(count);
        }
        self.network.read(engine.networks().totals(), engine.networks().open_connections());
        self.render()
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}

impl NetworkMeter {
    fn register(&self, registry: &mut Registry) {
        registry.register("decisions", "What gateways allowed, refused and failed at", self.decisions.clone());
        registry.register("sent_bytes", "Bytes from sandboxes", self.sent_bytes.clone());
        registry.register("received_bytes", "Bytes to sandboxes", self.received_bytes.clone());
        registry.register("dns_queries", "Names that sandboxes asked for", self.dns_queries.clone());
        registry.register("events_lost", "Decisions that were told to nobody", self.events_lost.clone());
        registry.register("connections", "Connections that are open", self.connections.clone());
    }

    fn read(&self, totals: &Totals, connections: u64) {
        let rise = |counter: &Counter, now: u64| counter.inc_by(now.saturating_sub(counter.get()));
        rise(&self.sent_bytes, totals.bytes_out());
        rise(&self.received_bytes, totals.bytes_in());
        rise(&self.dns_queries, totals.dns_queries());
        rise(&self.events_lost, totals.events_lost());
        self.connections.set(connections as i64);
        self.decisions.clear();
        for (kind, verdict, count) in totals.decisions() {
            let (verdict, reason) = match verdict {
                Verdict::Allowed => ("allowed", None),
                Verdict::Refused(why) => ("refused", code(&why)),
                Verdict::Failed(why) => ("failed", code(&why)),
            };
            let labels =
                DecisionLabels { kind: code(&kind).unwrap_or_default(), verdict, reason: reason.unwrap_or_default() };
            self.decisions.get_or_create(&labels).inc_by(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let meter = Meter::new();
        let invented = Method::from_bytes(b"BREW").unwrap();
        meter.request(&Method::GET, Some("/v1/sandboxes/{id}"), StatusCode::OK, Duration::from_millis(3));
        meter.request(&invented, None, StatusCode::NOT_FOUND, Duration::ZERO);
        let text = meter.render();
        let line = r#"sandling_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="200"} 1"#;
        assert!(text.contains(line), "{text}");
        assert!(text.contains(r#"method="other",route="none",status="404""#) && !text.contains("BREW"), "{text}");
    }
}
