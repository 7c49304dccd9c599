//! The export of traces and metrics to a collector.
//!
//! Each test runs on one thread, so that only its own server reports to its subscriber.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sandling_api::{Telemetry, TelemetrySettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use crate::harness::{PATIENCE, Server, TOKEN};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// Text that no attribute may contain.
const PRIVATE: &str = "very-private-text";

/// A collector that understands OTLP over HTTP.
#[derive(Clone, Default)]
struct Collector {
    heads: Arc<Mutex<Vec<String>>>,
    traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/otlp/", listener.local_addr().unwrap());
        let receiving = collector.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                receiving.receive(stream).await;
            }
        });
        (collector, url)
    }

    async fn receive(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let (head, body) = loop {
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "a whole request");
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if bytes.len() == end + 4 + length.parse::<usize>().unwrap() {
                break (head, bytes.split_off(end + 4));
            }
        };
        if head.starts_with("post /otlp/v1/traces ") {
            self.traces.lock().unwrap().push(ExportTraceServiceRequest::decode(body.as_slice()).unwrap());
        } else if head.starts_with("post /otlp/v1/metrics ") {
            self.metrics.lock().unwrap().push(ExportMetricsServiceRequest::decode(body.as_slice()).unwrap());
        } else {
            panic!("{head}");
        }
        self.heads.lock().unwrap().push(head);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }

    fn spans(&self) -> Vec<Span> {
        let traces = self.traces.lock().unwrap();
        let resources = traces.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }
}

/// Exports what happens on this thread while the guard is held.
fn export(url: &str, variables: &[(&str, &str)]) -> (Telemetry, DefaultGuard) {
    let usual = [("OTEL_EXPORTER_OTLP_HEADERS", "x-team=sand%20box"), ("OTEL_METRIC_EXPORT_INTERVAL", "50")];
    let find =
        |name: &str| variables.iter().chain(&usual).find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let telemetry = Telemetry::start(TelemetrySettings::new(url, find).unwrap().unwrap()).unwrap();
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    (telemetry, tracing::subscriber::set_default(subscriber))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        AttributeValue::StringValue(text) => text.clone(),
        AttributeValue::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn ask(server: &Server, method: &str, path: &str, traceparent: &str, body: &str) -> u16 {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
         traceparent: {traceparent}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    server.say(request.as_bytes()).await.status
}

#[tokio::test]
async fn a_request_continues_its_clients_trace_and_metrics_follow() {
    let (collector, url) = Collector::start().await;
    let (mut telemetry, _guard) = export(&url, &[]);
    let server = Server::start().await;
    telemetry.watch(server.app.clone());

    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let create = format!(r#"{{"template":"unknown","env":{{"KEY":"{PRIVATE}"}},"metadata":{{"a":"{PRIVATE}"}}}}"#);
    assert_eq!(ask(&server, "POST", "/v1/sandboxes", &sampled, &create).await, 400);
    let path = format!("/v1/sandboxes/{PRIVATE}/exec?token={PRIVATE}");
    assert_eq!(ask(&server, "POST", &path, &sampled, r#"{"cmd":"true"}"#).await, 404);
    // The client does not sample this one.
    assert_eq!(ask(&server, "GET", "/v1/volumes", &format!("00-{TRACE}-{PARENT}-00"), "").await, 200);
    // A trace of its own, as the header is of no use.
    assert_eq!(ask(&server, "GET", "/v1/snapshots", "nonsense", "").await, 200);

    until("metrics arrive by themselves", || !collector.metrics.lock().unwrap().is_empty()).await;
    telemetry.shutdown(&server.app).await;
    let spans = collector.spans();
    let named =
        |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:#?}"));

    let request = named("POST /v1/sandboxes");
    assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), (TRACE, PARENT));
    let server_kind = 2;
    assert_eq!(request.kind, server_kind);
    assert!(request.end_time_unix_nano > request.start_time_unix_nano);
    let attribute = |key| text(&request.attributes, key);
    assert_eq!(attribute("http.response.status_code").as_deref(), Some("400"));
    assert_eq!(attribute("error.type").as_deref(), Some("template_unknown"));
    assert_eq!(attribute("sandling.workspace").as_deref(), Some("default"));
    assert_eq!(attribute("sandling.request.id").map(|id| id.len()), Some(16));
    let create = named("create");
    assert_eq!((&create.trace_id, &create.parent_span_id), (&request.trace_id, &request.span_id));

    assert_eq!(hex(&named("POST /v1/sandboxes/{id}/exec").trace_id), TRACE);
    assert!(!spans.iter().any(|span| span.name == "GET /v1/volumes"), "its client does not sample it");
    let alone = named("GET /v1/snapshots");
    assert!(alone.parent_span_id.is_empty() && hex(&alone.trace_id) != TRACE);
    for span in &spans {
        assert!(!format!("{span:?}").contains(PRIVATE) && !format!("{span:?}").contains(TOKEN), "{span:#?}");
    }

    let traces = collector.traces.lock().unwrap();
    let resource = traces[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(text(&resource.attributes, "service.name").as_deref(), Some("sandling"));
    assert!(collector.heads.lock().unwrap().iter().all(|head| head.contains("x-team: sand box")));

    let metrics = collector.metrics.lock().unwrap();
    let last = &metrics.last().unwrap().resource_metrics[0];
    assert_eq!(last.resource.as_ref().map(|resource| resource.attributes.len()), Some(resource.attributes.len()));
    let metric = |name: &str| last.scope_metrics[0].metrics.iter().find(|metric| metric.name == name).unwrap();
    let Some(Data::Sum(requests)) = &metric("sandling_http_requests").data else { panic!("a sum") };
    let routed = |route| move |point: &&NumberDataPoint| text(&point.attributes, "route").as_deref() == Some(route);
    let creates = requests.data_points.iter().find(routed("/v1/sandboxes")).unwrap();
    assert_eq!(text(&creates.attributes, "status").as_deref(), Some("400"));
    assert_eq!(creates.value, Some(NumberValue::AsDouble(1.0)));
    let Some(Data::Histogram(durations)) = &metric("sandling_http_request_seconds").data else { panic!("a histogram") };
    for point in &durations.data_points {
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    }
}

#[tokio::test]
async fn a_collector_that_never_answers_costs_no_request_and_little_at_the_end() {
    // It accepts connections, and then is silent.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    // Each batch would wait for half a minute.
    let (mut telemetry, _guard) = export(&url, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "30000")]);
    let server = Server::start().await;
    telemetry.watch(server.app.clone());
    // More spans than the queue holds.
    let begun = Instant::now();
    for number in 0..100 {
        tracing::info_span!(target: "sandling::trace", "filling").in_scope(|| {
            for _ in 0..40 {
                drop(tracing::info_span!(target: "sandling::trace", "filler", number));
            }
        });
        assert_eq!(server.get("/v1/volumes").await.status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "requests waited: {:?}", begun.elapsed());
    let (stream, _) = silent.accept().await.unwrap();
    let ending = Instant::now();
    telemetry.shutdown(&server.app).await;
    assert!(ending.elapsed() < Duration::from_secs(10), "the end waited: {:?}", ending.elapsed());
    drop(stream);
}

#[tokio::test]
async fn a_dead_collector_is_one_line_in_the_log() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let find = |name: &str| (name == "OTEL_METRIC_EXPORT_INTERVAL").then(|| "20".to_owned());
    let settings = TelemetrySettings::new(&format!("http://{dead}"), find).unwrap().unwrap();
    let mut telemetry = Telemetry::start(settings).unwrap();
    let log = Log::default();
    let lines = log.0.clone();
    let writer = move || log.clone();
    let subscriber = tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer))
        .with(telemetry.layer());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    telemetry.watch(server.app.clone());
    let told = || String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    until("the first failure is told", || told().contains("takes no data")).await;
    // More failures.
    for _ in 0..20 {
        assert_eq!(server.get("/v1/volumes").await.status, 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    telemetry.shutdown(&server.app).await;
    assert_eq!(told().matches("takes no data").count(), 1, "{}", told());
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
