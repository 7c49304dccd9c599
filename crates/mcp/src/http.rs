//! Many clients, over streamable HTTP. Each has to show a token, and has a session of its own.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, Versions};
use crate::session::{Alive, REMOVE_WITHIN, Session, SessionSettings};

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the address of the listening socket is not known")]
    Address(#[source] io::Error),
    #[error("the server broke")]
    Broken(#[source] io::Error),
}

/// What a call may take besides its run: a server is started for it, a machine made, a turn waited for.
const BEYOND_A_RUN: Duration = Duration::from_secs(600);

/// The sessions that are alive.
type Sessions = Arc<Mutex<Vec<Weak<Session>>>>;

/// Serves `/mcp` until `stop` says so; then all sandboxes are ended.
pub async fn serve_http(
    listener: TcpListener,
    token: String,
    settings: SessionSettings,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let sessions = Sessions::default();
    let address = listener.local_addr().map_err(HttpError::Address)?;
    let mut config = StreamableHttpServerConfig::default()
        .with_cancellation_token(stop.child_token())
        .enforce_origin_validation()
        .with_max_request_body_bytes(64 * 1024 * 1024);
    if !address.ip().is_loopback() {
        // By what name others reach this machine is not known here; the token keeps strangers out.
        config = config.disable_allowed_hosts();
    }
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(longest_silence(&settings));
    let made = sessions.clone();
    let (alive, mut ended) = mpsc::channel(1);
    let service = StreamableHttpService::new(
        move || Ok(Handler { session: begin(&made, &settings, alive.clone()), versions: Versions::WithSessions }),
        Arc::new(manager),
        config,
    );
    let router = Router::new().route_service("/mcp", service).layer(from_fn_with_state(Arc::new(token), admit));
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    let left: Vec<_> = lock(&sessions).drain(..).collect();
    for session in left.iter().filter_map(Weak::upgrade) {
        session.end().await;
    }
    // Those that ended just now still have their sandboxes to end.
    let _ = tokio::time::timeout(REMOVE_WITHIN, ended.recv()).await;
    served.map_err(HttpError::Broken)
}

/// When a session counts as left. A call under way is silent for as long as it takes; a sandbox that nobody uses ends
/// by itself before that.
fn longest_silence(settings: &SessionSettings) -> Duration {
    settings.idle.max(settings.tools.timeout.saturating_add(BEYOND_A_RUN))
}

fn begin(sessions: &Sessions, settings: &SessionSettings, alive: Alive) -> Arc<Session> {
    let session = Arc::new(Session::new(settings.clone(), alive));
    let mut all = lock(sessions);
    all.retain(|session| session.strong_count() > 0);
    all.push(Arc::downgrade(&session));
    session
}

fn lock(sessions: &Sessions) -> std::sync::MutexGuard<'_, Vec<Weak<Session>>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn admit(State(token): State<Arc<String>>, request: Request, next: Next) -> Response {
    if is_shown(request.headers(), &token) {
        let ends = request.method() == Method::DELETE;
        let mut answer = next.run(request).await;
        if ends && answer.status() == StatusCode::ACCEPTED {
            // Python's client tells its user that any other answer is a failure.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        return answer;
    }
    let why = "a token is needed: the header `Authorization: Bearer …` with the token of the Sandling server";
    // The body is not read, so nothing can follow it; a client that is not told so would send its next request in vain.
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer"), (CONNECTION, "close")], why).into_response()
}

fn is_shown(headers: &HeaderMap, token: &str) -> bool {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    shown.is_some_and(|shown| is_same(shown, token.as_bytes()))
}

/// Takes as long whatever differs.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_opens() {
        let shows = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            is_shown(&headers, "secret")
        };
        assert!(shows("Bearer secret"));
        for bad in ["Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"] {
            assert!(!shows(bad), "{bad}");
        }
        assert!(!is_shown(&HeaderMap::new(), "secret"));
    }
}
