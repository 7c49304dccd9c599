//! The span of an HTTP request.

use axum::http::{HeaderMap, Method, StatusCode};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use sandling_engine::TRACE_TARGET;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::context::RequestContext;

/// Starts the span of a request, as a part of the trace that its `traceparent` names.
///
/// It has the route's pattern and not the path, whose parts may be anything.
pub(crate) fn request_span(
    method: &Method,
    route: Option<&str>,
    headers: &HeaderMap,
    context: &RequestContext,
) -> Span {
    let span = tracing::info_span!(
        target: TRACE_TARGET,
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = Empty,
        http.route = Empty,
        http.response.status_code = Empty,
        "error.type" = Empty,
        sandling.request.id = Empty,
        sandling.workspace = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    // The parent cannot be set if another subscriber took the span; then there is nothing to export.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Headers(headers)));
    let method = known(method);
    match route {
        Some(route) => span.record("otel.name", format!("{method} {route}")).record("http.route", route),
        None => span.record("otel.name", method),
    };
    span.record("http.request.method", method).record("sandling.request.id", context.id());
    span
}

/// The span of what happens on a socket after its request was answered.
pub(crate) fn socket_span() -> Span {
    tracing::info_span!(target: TRACE_TARGET, "socket")
}

/// Records how a request was answered.
pub(crate) fn finish_request(span: &Span, status: StatusCode, error: Option<&str>, context: &RequestContext) {
    span.record("http.response.status_code", status.as_u16());
    if let Some(principal) = context.principal() {
        span.record("sandling.workspace", principal.workspace.as_str());
    }
    if let Some(code) = error {
        span.record("error.type", code);
    }
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The method, if it is one that clients use; anybody can make up others.
fn known(method: &Method) -> &str {
    let usual = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
    if usual.contains(method) { method.as_str() } else { "_OTHER" }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
