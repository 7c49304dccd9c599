//! The outermost layer around every request: it sets the request id, formats errors, writes the audit log and counts
//! metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, Span};

use crate::app::App;
use crate::audit::{self, Action};
use crate::context::{self, RequestContext};
use crate::error::ApiError;
use crate::live_requests::{self, UpgradedBy};
use crate::telemetry::{finish_request, request_span};

/// What the layer knows about the routes inside it.
#[derive(Clone)]
pub(crate) struct RequestLayer {
    pub(crate) app: Arc<App>,
    pub(crate) actions: Arc<[Action]>,
}

/// Changes the errors of a request. A dialect adds it to the requests of its clients.
#[derive(Clone, Copy)]
pub(crate) struct ErrorFilter(pub(crate) fn(&mut ApiError));

/// Runs the inner layers with a new request context.
///
/// A request that changes something runs in its own task. If the client disconnects, the work still completes and still
/// reaches the audit log.
pub(crate) async fn layer(State(layer): State<RequestLayer>, request: Request, next: Next) -> Response {
    let context = RequestContext::new(&request, layer.app.live_requests.begin());
    let (method, path) = (request.method(), request.uri().path());
    audit::name(&context, &layer.actions, method, matched(&request).as_deref(), path);
    let may_change = audit::may_change(method, &context);
    let span = request_span(method, matched(&request).as_deref(), request.headers(), &context);
    let work = handle(layer.app, context.clone(), request, next).instrument(span);
    if !may_change {
        return work.await;
    }
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| ApiError::internal(&error).render(context.id()))
}

async fn handle(app: Arc<App>, context: RequestContext, mut request: Request, next: Next) -> Response {
    let _busy = app.activity.begin();
    let started = Instant::now();
    let method = request.method().clone();
    let route = matched(&request);
    let filter = request.extensions().get::<ErrorFilter>().copied();
    request.extensions_mut().insert(context.clone());
    let upgraded_by = request.extensions().get::<UpgradedBy>().cloned();
    let mut response = next.run(request).await;
    match upgraded_by.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS) {
        Some(upgraded_by) => upgraded_by.set(context.live().clone()),
        None => response = live_requests::end_with(context.live().clone(), response),
    }
    let mut error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &mut error {
        if let Some(ErrorFilter(change)) = filter {
            change(error);
        }
        response = error.render(context.id());
    }
    let value = HeaderValue::from_str(context.id()).expect("an id has only letters, digits, `_` and `-`");
    response.headers_mut().insert(context::HEADER, value);
    app.meter.request(&method, route.as_deref(), response.status(), started.elapsed());
    audit::record(&app, &context, &response, error.as_ref());
    finish_request(&Span::current(), response.status(), error.as_ref().map(|error| error.code), &context);
    response
}

fn matched(request: &Request) -> Option<String> {
    request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned())
}
