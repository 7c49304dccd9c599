//! The outermost layer around every request: it sets the request id, formats errors, writes the audit log and counts
//! metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::App;
use crate::audit;
use crate::context::{self, RequestContext};
use crate::error::ApiError;
use crate::live_requests::{self, UpgradedBy};

/// Runs the inner layers with a new request context.
///
/// A request that changes something runs in its own task. If the client disconnects, the work still completes and still
/// reaches the audit log.
pub(crate) async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let context = RequestContext::new(&request, app.live_requests.begin());
    let acts = audit::acts(request.method(), matched(&request).as_deref());
    let work = handle(app, context.clone(), request, next);
    if !acts {
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
    let path = request.uri().path().to_owned();
    request.extensions_mut().insert(context.clone());
    let upgraded_by = request.extensions().get::<UpgradedBy>().cloned();
    let mut response = next.run(request).await;
    match upgraded_by.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS) {
        Some(upgraded_by) => upgraded_by.set(context.live().clone()),
        None => response = live_requests::end_with(context.live().clone(), response),
    }
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &error {
        response = error.render(context.id());
    }
    let value = HeaderValue::from_str(context.id()).expect("an id has only letters, digits, `_` and `-`");
    response.headers_mut().insert(context::HEADER, value);
    app.meter.request(&method, route.as_deref(), response.status(), started.elapsed());
    let done = audit::Done { method, route, path, status: response.status(), error };
    if !audit::is_socket_of_commands(&done) {
        audit::record(&app, &context, &done);
    }
    response
}

fn matched(request: &Request) -> Option<String> {
    request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned())
}
