//! The outermost layer around every request: its id, its errors' bodies, its line in the audit log, its figures.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use sandling_service::Principal;

use crate::app::App;
use crate::audit;
use crate::error::ApiError;
use crate::server::Peer;

const HEADER: &str = "x-request-id";

/// What is known of a request from outside its handler. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct RequestContext(Arc<Context>);

struct Context {
    id: String,
    peer: Option<Peer>,
    principal: OnceLock<Principal>,
    object: OnceLock<String>,
}

impl RequestContext {
    fn new(request: &Request) -> Self {
        Self(Arc::new(Context {
            id: requested_id(request.headers()).unwrap_or_else(fresh_id),
            peer: request.extensions().get().copied(),
            principal: OnceLock::new(),
            object: OnceLock::new(),
        }))
    }

    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn peer(&self) -> Option<std::net::SocketAddr> {
        self.0.peer.map(|Peer(address)| address)
    }

    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.0.principal.get()
    }

    pub(crate) fn object(&self) -> Option<&str> {
        self.0.object.get().map(String::as_str)
    }

    // The first to say it is right: later ones would say the same.
    pub(crate) fn came_from(&self, principal: &Principal) {
        let _ = self.0.principal.set(principal.clone());
    }

    /// Names what a request made, which its path cannot.
    pub(crate) fn made(&self, object: &str) {
        let _ = self.0.object.set(object.to_owned());
    }
}

/// Runs the rest within a context of its own.
///
/// What acts runs in a task of its own: a client that goes away in the middle neither leaves it half done nor keeps it
/// out of the audit log.
pub(crate) async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let context = RequestContext::new(&request);
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
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &error {
        response = error.render(context.id());
    }
    let value = HeaderValue::from_str(context.id()).expect("an id has only letters, digits, `_` and `-`");
    response.headers_mut().insert(HEADER, value);
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

/// The client's own id, if it is one that can be put into a log without harm.
fn requested_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(HEADER)?.to_str().ok()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    ((1..=64).contains(&id.len()) && id.bytes().all(allowed)).then(|| id.to_owned())
}

fn fresh_id() -> String {
    sandling_service::random::hex::<8>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(id: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(id).unwrap());
        requested_id(&headers)
    }

    #[test]
    fn a_clients_id_is_kept_unless_it_could_do_harm() {
        assert_eq!(wanted("trace-1_A"), Some("trace-1_A".to_owned()));
        for bad in ["", "a b", "a\"b", "a;b", &"x".repeat(65)] {
            assert_eq!(wanted(bad), None, "{bad:?}");
        }
        assert_eq!(fresh_id().len(), 16);
    }
}
