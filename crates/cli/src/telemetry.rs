//! The log on the standard error, and the export of traces and metrics.

use sandling_api::{Telemetry, TelemetrySettings};
use sandling_engine::TRACE_TARGET;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::options::{Command, Options};
use crate::show;

/// OpenTelemetry's variable for the collector's URL.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Starts the log, and the export if `serve` is to export.
pub fn start(options: &Options) -> anyhow::Result<Option<Telemetry>> {
    let telemetry = settings(options)?.map(Telemetry::start).transpose()?;
    let filter = EnvFilter::try_from_env("SANDLING_LOG").unwrap_or_else(|_| "warn".into());
    // These spans are for the export. In the log they would stand before every message.
    let filter = filter.add_directive(format!("{TRACE_TARGET}=off").parse()?);
    let log = fmt::layer().with_writer(std::io::stderr).with_ansi(show::has_colours(&std::io::stderr()));
    tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(telemetry.as_ref().and_then(Telemetry::layer))
        .init();
    Ok(telemetry)
}

fn settings(options: &Options) -> anyhow::Result<Option<TelemetrySettings>> {
    let Command::Serve(options) = &options.command else { return Ok(None) };
    if let Some(endpoint) = &options.otlp {
        return Ok(TelemetrySettings::from_environment(endpoint)?);
    }
    let Some(endpoint) = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty()) else { return Ok(None) };
    // The variables may be meant for another program that supports more. A server that starts by itself has them, too.
    Ok(TelemetrySettings::from_environment(&endpoint).unwrap_or_else(|error| {
        eprintln!("sandling: the server sends no telemetry: {error}");
        None
    }))
}
