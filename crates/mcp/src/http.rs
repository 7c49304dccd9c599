//! Serves many clients over streamable HTTP. Each client must send a token, and gets its own session.

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
use crate::session::{REMOVE_WITHIN, Session, SessionSettings, ShutdownGuard};

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot determine the address of the listening socket")]
    Address(#[source] io::Error),
    #[error("the server failed")]
    Broken(#[source] io::Error),
}

/// The time that a call may take besides its run: to start a server, create a machine, and wait in a queue.
const BEYOND_A_RUN: Duration = Duration::from_secs(600);

/// The live sessions.
type Sessions = Arc<Mutex<Vec<Weak<Session>>>>;

/// Serves `/mcp` until `stop` is cancelled. Then it ends all sandboxes.
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
        // The names under which others reach this host are not known here. The token keeps strangers out.
        config = config.disable_allowed_hosts();
    }
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(longest_silence(&settings));
    let made = sessions.clone();
    let (guard, mut ended) = mpsc::channel(1);
    let service = StreamableHttpService::new(
        move || Ok(Handler { session: begin(&made, &settings, guard.clone()), versions: Versions::WithSessions }),
        Arc::new(manager),
        config,
    );
    let router = Router::new().route_service("/mcp", service).layer(from_fn_with_state(Arc::new(token), admit));
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    let left: Vec<_> = lock(&sessions).drain(..).collect();
    for session in left.iter().filter_map(Weak::upgrade) {
        session.end().await;
    }
    // Sessions that have just ended still need to end their sandboxes.
    let _ = tokio::time::timeout(REMOVE_WITHIN, ended.recv()).await;
    served.map_err(HttpError::Broken)
}

/// When a session counts as abandoned. A call in progress sends nothing until it is done. An unused sandbox ends before
/// this time.
fn longest_silence(settings: &SessionSettings) -> Duration {
    settings.idle.max(settings.tools.timeout.saturating_add(BEYOND_A_RUN))
}

fn begin(sessions: &Sessions, settings: &SessionSettings, guard: ShutdownGuard) -> Arc<Session> {
    let session = Arc::new(Session::new(settings.clone(), guard));
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
            // Python's client reports any other status as a failure to its user.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        return answer;
    }
    let why = "a token is required; send the Sandling server's token as `Authorization: Bearer …`";
    // The body is not read, so the connection cannot be reused. Without this header, the client's next request would
    // fail.
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer"), (CONNECTION, "close")], why).into_response()
}

fn is_shown(headers: &HeaderMap, token: &str) -> bool {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    shown.is_some_and(|shown| is_same(shown, token.as_bytes()))
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_is_accepted() {
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
