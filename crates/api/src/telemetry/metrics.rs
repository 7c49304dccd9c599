//! Sends the metrics that `/metrics` has, under the same names.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message;
use tokio::time::MissedTickBehavior;

use super::collector::Collector;
use super::openmetrics::{self, Family, Sample};
use crate::app::App;

pub(super) struct MetricsExport {
    collector: Arc<Collector>,
    resource: WireResource,
    started: u64,
}

impl MetricsExport {
    pub(super) fn new(collector: Arc<Collector>, resource: &Resource) -> Self {
        let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
        let resource = WireResource { attributes, ..WireResource::default() };
        Self { collector, resource, started: unix_nanos() }
    }

    /// Sends all metrics again and again until the task is aborted.
    pub(super) async fn run(&self, app: &App) {
        let mut ticks = tokio::time::interval(self.collector.settings().metrics_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.send(app).await;
        }
    }

    pub(super) async fn send(&self, app: &App) {
        let text = app.meter.read(&app.engine, &app.service.audit);
        // Metrics that were not taken are part of the next ones.
        let _ = self.collector.post("/v1/metrics", self.message(&text).encode_to_vec()).await;
    }

    fn message(&self, text: &str) -> ExportMetricsServiceRequest {
        let span = Span { started: self.started, now: unix_nanos() };
        let metrics = openmetrics::parse(text).iter().filter_map(|family| span.metric(family)).collect();
        let scope = InstrumentationScope { name: "sandling".to_owned(), ..InstrumentationScope::default() };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

/// The time that the values are of, in nanoseconds since 1970.
struct Span {
    started: u64,
    now: u64,
}

impl Span {
    fn metric(&self, family: &Family<'_>) -> Option<Metric> {
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let data = match family.kind {
            "counter" => {
                let data_points = family.samples.iter().map(|sample| self.point(sample, self.started)).collect();
                metric::Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            }
            "gauge" => {
                let data_points = family.samples.iter().map(|sample| self.point(sample, 0)).collect();
                metric::Data::Gauge(Gauge { data_points })
            }
            "histogram" => {
                let data_points = self.histograms(&family.samples);
                metric::Data::Histogram(Histogram { data_points, aggregation_temporality })
            }
            _ => return None,
        };
        let unit = match family.name.rsplit('_').next() {
            Some("seconds") => "s",
            Some("bytes") => "By",
            _ => "",
        };
        Some(Metric {
            name: family.name.to_owned(),
            description: family.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        })
    }

    fn point(&self, sample: &Sample<'_>, start: u64) -> NumberDataPoint {
        NumberDataPoint {
            attributes: attributes(&sample.labels),
            start_time_unix_nano: start,
            time_unix_nano: self.now,
            value: Some(number_data_point::Value::AsDouble(sample.value)),
            ..NumberDataPoint::default()
        }
    }

    /// One point for each set of labels. The text has cumulative buckets, and a point has the count of each.
    fn histograms(&self, samples: &[Sample<'_>]) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        for sample in samples {
            let labels: Vec<_> = sample.labels.iter().filter(|(name, _)| *name != "le").cloned().collect();
            let attributes = attributes(&labels);
            let at = points.iter().position(|point| point.attributes == attributes).unwrap_or_else(|| {
                let (start_time_unix_nano, time_unix_nano) = (self.started, self.now);
                let empty = HistogramDataPoint::default();
                points.push(HistogramDataPoint { attributes, start_time_unix_nano, time_unix_nano, ..empty });
                points.len() - 1
            });
            let point = &mut points[at];
            match sample.suffix {
                "_sum" => point.sum = Some(sample.value),
                "_count" => point.count = sample.value as u64,
                "_bucket" => {
                    let below: u64 = point.bucket_counts.iter().sum();
                    point.bucket_counts.push((sample.value as u64).saturating_sub(below));
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                    point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
                }
                _ => {}
            }
        }
        points
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.clone())) }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};

    use super::*;
    use crate::meter::Meter;

    #[test]
    fn a_histogram_has_the_count_of_each_bucket() {
        let text = "# TYPE s_seconds histogram\ns_seconds_sum{route=\"/a\"} 0.7\ns_seconds_count{route=\"/a\"} 3\n\
                    s_seconds_bucket{le=\"0.1\",route=\"/a\"} 1\ns_seconds_bucket{le=\"1.0\",route=\"/a\"} 3\n\
                    s_seconds_bucket{le=\"+Inf\",route=\"/a\"} 3\n";
        let span = Span { started: 1, now: 2 };
        let metric = span.metric(&openmetrics::parse(text)[0]).unwrap();
        let Some(metric::Data::Histogram(histogram)) = metric.data else { panic!("a histogram") };
        let [point] = histogram.data_points.as_slice() else { panic!("one series") };
        assert_eq!((point.count, point.sum, metric.unit.as_str()), (3, Some(0.7), "s"));
        assert_eq!(
            (point.bucket_counts.as_slice(), point.explicit_bounds.as_slice()),
            (&[1, 2, 0][..], &[0.1, 1.0][..])
        );
    }

    #[test]
    fn every_metric_of_the_server_is_exported() {
        let meter = Meter::new();
        meter.request(&Method::GET, Some("/a"), StatusCode::OK, std::time::Duration::from_millis(3));
        let text = meter.render();
        let families = openmetrics::parse(&text);
        let span = Span { started: 1, now: 2 };
        let exported = families.iter().filter_map(|family| span.metric(family)).count();
        assert_eq!(exported, text.lines().filter(|line| line.starts_with("# TYPE")).count());
        let requests = families.iter().find(|family| family.name == "sandling_http_requests").unwrap();
        assert_eq!(requests.samples.len(), 1);
    }
}
