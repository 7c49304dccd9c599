//! Where telemetry goes, as OpenTelemetry's environment variables say it.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use opentelemetry_sdk::Resource;
use percent_encoding::percent_decode_str;
use sandling_service::WebhookUrl;

const SERVICE: &str = "sandling";
const PROTOCOL: &str = "http/protobuf";

#[derive(Debug, thiserror::Error)]
pub enum BadTelemetry {
    #[error("`{0}` is not the URL of a collector; use http://HOST:4318 or https://HOST, without a user or password")]
    Endpoint(String),
    // The value may be a token, so it is not repeated.
    #[error("OTEL_EXPORTER_OTLP_HEADERS is not a list of NAME=VALUE with commas in between")]
    Headers,
    #[error("OTEL_EXPORTER_OTLP_PROTOCOL is `{0}`, but only {PROTOCOL} is supported; unset it or set it to {PROTOCOL}")]
    Protocol(String),
    #[error("{name} is `{value}`, but must be a number of milliseconds")]
    Milliseconds { name: &'static str, value: String },
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// What is exported, and where it goes.
#[derive(Debug, Clone)]
pub struct TelemetrySettings {
    pub(super) endpoint: WebhookUrl,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// How long the collector may take for one request.
    pub(super) timeout: Duration,
    pub(super) traces: bool,
    pub(super) metrics: bool,
    pub(super) metrics_every: Duration,
}

impl TelemetrySettings {
    /// Settings for the collector at this URL, with OpenTelemetry's environment variables. `None` if they disable
    /// everything.
    pub fn from_environment(endpoint: &str) -> Result<Option<Self>, BadTelemetry> {
        Self::new(endpoint, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The same with other variables.
    pub fn new(endpoint: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, BadTelemetry> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        if let Some(protocol) = variable("OTEL_EXPORTER_OTLP_PROTOCOL").filter(|protocol| protocol != PROTOCOL) {
            return Err(BadTelemetry::Protocol(protocol));
        }
        let bad = |_| BadTelemetry::Endpoint(endpoint.to_owned());
        let mut url: WebhookUrl = endpoint.parse().map_err(bad)?;
        url.path.truncate(url.path.trim_end_matches('/').len());
        let milliseconds = |name: &'static str, usual: u64| match variable(name) {
            None => Ok(Duration::from_millis(usual)),
            Some(value) => match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(Duration::from_millis(number)),
                _ => Err(BadTelemetry::Milliseconds { name, value }),
            },
        };
        let wanted = |name| variable(name).is_none_or(|exporter| exporter != "none");
        let settings = Self {
            endpoint: url,
            headers: headers(&variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
            traces: wanted("OTEL_TRACES_EXPORTER"),
            metrics: wanted("OTEL_METRICS_EXPORTER"),
            metrics_every: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
        };
        Ok(Some(settings).filter(|settings| settings.traces || settings.metrics))
    }
}

/// What the telemetry is of: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, and this version.
pub(super) fn resource() -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&"service.name".into()).map(|name| name.to_string());
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    match name {
        // The SDK makes up a name if the variables have none.
        Some(name) if !name.starts_with("unknown_service") => builder.build(),
        _ => builder.with_service_name(SERVICE).build(),
    }
}

/// Parses `NAME=VALUE,NAME=VALUE` with percent-encoded values.
fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, BadTelemetry> {
    let parse = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    };
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs.map(|pair| parse(pair).ok_or(BadTelemetry::Headers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<TelemetrySettings>, BadTelemetry> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        TelemetrySettings::new("http://collector:4318/", find)
    }

    #[test]
    fn opentelemetrys_variables_are_obeyed() {
        let read = settings(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-team = a"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ]);
        let read = read.unwrap().unwrap();
        assert_eq!((read.endpoint.host.as_str(), read.endpoint.path.as_str()), ("collector", ""));
        let headers: Vec<_> =
            read.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(headers, [("authorization", "Bearer abc"), ("x-team", "a")]);
        assert_eq!((read.timeout, read.traces, read.metrics), (Duration::from_millis(500), true, false));
        assert!(settings(&[("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        let none = [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")];
        assert!(settings(&none).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused_without_repeating_a_token() {
        let refused = |variables: &[(&str, &str)]| settings(variables).unwrap_err().to_string();
        assert!(refused(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).contains("only http/protobuf is supported"));
        assert!(!refused(&[("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]).contains("s3cret"));
        assert!(refused(&[("OTEL_METRIC_EXPORT_INTERVAL", "0")]).contains("OTEL_METRIC_EXPORT_INTERVAL is `0`"));
        for bad in ["collector:4318", "ftp://collector", "http://a:b@collector"] {
            assert!(matches!(TelemetrySettings::new(bad, |_| None), Err(BadTelemetry::Endpoint(_))), "{bad}");
        }
    }
}
