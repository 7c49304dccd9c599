//! Sends encoded telemetry to a collector.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Bytes;
use http_body_util::Full;
use hyper::{Request, header};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::TelemetrySettings;
use crate::http_client::{send, tls_connector};

const AGENT: &str = concat!("sandling/", env!("CARGO_PKG_VERSION"));

pub(super) struct Collector {
    settings: TelemetrySettings,
    tls: TlsConnector,
    /// Whether the last request failed. Only the first failure of an outage is logged.
    is_down: AtomicBool,
}

/// The collector did not take the data. The log has the reason.
#[derive(Debug)]
pub(super) struct NotTaken;

impl Collector {
    pub(super) fn new(settings: TelemetrySettings) -> Result<Self, rustls::Error> {
        Ok(Self { settings, tls: tls_connector()?, is_down: AtomicBool::new(false) })
    }

    pub(super) fn settings(&self) -> &TelemetrySettings {
        &self.settings
    }

    /// Sends a protobuf message to a path below the endpoint, once.
    pub(super) async fn post(&self, path: &str, message: Vec<u8>) -> Result<(), NotTaken> {
        let sending = tokio::time::timeout(self.settings.timeout, self.try_post(path, message));
        let failure = match sending.await {
            Ok(Ok(200..=299)) => None,
            Ok(Ok(status)) => Some(format!("it answered with status {status}")),
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("it did not answer within {} ms", self.settings.timeout.as_millis())),
        };
        let was_down = self.is_down.swap(failure.is_some(), Ordering::Relaxed);
        let collector = self.settings.endpoint.authority();
        match failure {
            None if was_down => tracing::info!(collector, "the OpenTelemetry collector takes data again"),
            None => {}
            Some(why) => {
                if !was_down {
                    tracing::warn!(
                        collector,
                        why,
                        "the OpenTelemetry collector takes no data; it is dropped until it does"
                    );
                }
                return Err(NotTaken);
            }
        }
        Ok(())
    }

    async fn try_post(&self, path: &str, message: Vec<u8>) -> Result<u16, String> {
        let url = &self.settings.endpoint;
        let cannot = |error: std::io::Error| format!("cannot connect: {error}");
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(cannot)?;
        let mut request = Request::post(format!("{}{path}", url.path))
            .header(header::HOST, url.authority())
            .header(header::USER_AGENT, AGENT)
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(Bytes::from(message)))
            .map_err(|error| error.to_string())?;
        request.headers_mut().extend(self.settings.headers.iter().cloned());
        send(stream, url.is_https.then_some((&self.tls, url.host.as_str())), request).await
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("endpoint", &self.settings.endpoint).finish_non_exhaustive()
    }
}
