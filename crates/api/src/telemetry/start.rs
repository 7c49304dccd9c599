//! The lifetime of the exporters.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use sandling_engine::TRACE_TARGET;
use tokio::task::JoinSet;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::collector::Collector;
use super::metrics::MetricsExport;
use super::settings::{BadTelemetry, TelemetrySettings, resource};
use super::spans::Exporter;
use crate::app::App;

/// How long a server that ends waits for the collector to take the rest.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// The export of spans and metrics to one collector.
///
/// Spans wait in a bounded queue; the environment variables `OTEL_BSP_*` change its size and delay, and
/// `OTEL_TRACES_SAMPLER` which traces are exported.
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    metrics: Option<Arc<MetricsExport>>,
    tasks: JoinSet<()>,
}

impl Telemetry {
    /// Starts the export of spans, within the runtime that is to send them.
    pub fn start(settings: TelemetrySettings) -> Result<Self, BadTelemetry> {
        let collector = Arc::new(Collector::new(settings)?);
        let resource = resource();
        let spans = collector.settings().traces.then(|| {
            let processor = BatchSpanProcessor::builder(Exporter::new(collector.clone())).build();
            SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource.clone()).build()
        });
        let metrics = collector.settings().metrics.then(|| Arc::new(MetricsExport::new(collector, &resource)));
        Ok(Self { spans, metrics, tasks: JoinSet::new() })
    }

    /// Turns the spans of requests into spans for the collector. Other spans and the log are not exported.
    pub fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let tracer = self.spans.as_ref()?.tracer("sandling");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        Some(layer.with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TRACE_TARGET)))
    }

    /// Starts the export of the server's metrics.
    pub fn watch(&mut self, app: Arc<App>) {
        if let Some(metrics) = self.metrics.clone() {
            self.tasks.spawn(async move { metrics.run(&app).await });
        }
    }

    /// Sends what is left, and gives up after two seconds.
    pub async fn shutdown(mut self, app: &App) {
        self.tasks.shutdown().await;
        let metrics = async {
            if let Some(metrics) = &self.metrics {
                metrics.send(app).await;
            }
        };
        let spans = self.spans.take();
        let spans = tokio::task::spawn_blocking(move || {
            // What is lost is telemetry, and the log has the reason.
            spans.map(|spans| spans.shutdown_with_timeout(FLUSH_WITHIN))
        });
        let _ = tokio::time::timeout(FLUSH_WITHIN, async { tokio::join!(metrics, spans) }).await;
    }
}
