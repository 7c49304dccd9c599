//! Accepts connections, passes their requests to the router, and drains them at shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::connection::Connection;
use super::heartbeat::Heartbeat;
use super::upgraded::Upgradable;
use crate::app::App;
use crate::context::Peer;
use crate::live_requests::UpgradedBy;
use crate::router;

/// Limits for clients of the server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// The most connections. Further clients get 503 with `Retry-After`.
    pub connections: usize,
    /// How long a client may take to send a request's head. It also is the idle timeout of a connection.
    pub head_within: Duration,
    /// How long running requests may take to finish at shutdown.
    pub drain_within: Duration,
    /// The interval of interim responses, for clients with a short read timeout.
    pub heartbeat: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head_within: Duration::from_secs(60),
            drain_within: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
        }
    }
}

/// How often abandoned uploads are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// How often requests in progress are checked for tokens that have expired, or that another process has revoked.
const CHECK_TOKENS_EVERY: Duration = Duration::from_secs(1);

/// Sent without reading the request, so that a connection over the limit costs almost nothing.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 63\r\n\r\n{\"error\":\"too many connections\",\"code\":\"too_many_connections\"}\n";

/// Serves until `shutdown` completes, then waits for running requests.
pub async fn serve(listener: TcpListener, app: Arc<App>, limits: ServerLimits, shutdown: impl Future<Output = ()>) {
    let server = Server {
        router: router::build(app.clone()),
        places: Arc::new(Semaphore::new(limits.connections.min(descriptors() / 2))),
        app,
        limits,
    };
    let builds = server.app.service.builds.clone();
    tokio::spawn(async move { builds.clean_up().await });
    let mut connections = JoinSet::new();
    let mut sweeps = tokio::time::interval(SWEEP_EVERY);
    let mut revocations = tokio::time::interval(CHECK_TOKENS_EVERY);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => server.admit(stream, peer, &mut connections),
                Err(error) => wait_out(&error).await,
            },
            Some(_) = connections.join_next() => {}
            _ = revocations.tick() => server.app.end_unauthorized(),
            _ = sweeps.tick() => server.app.service.builds.forget_unused_files(),
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    server.app.close_streams();
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(server.limits.drain_within, drained).await.is_err() {
        tracing::warn!("shutdown: unfinished requests are aborted");
    }
    connections.shutdown().await;
}

/// Raises the limit of file descriptors and returns it. The caller uses only half for connections, because virtual
/// machines need descriptors, too.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let granted = if setrlimit(Resource::Nofile, most).is_ok() { limit.maximum } else { limit.current };
    granted.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

struct Server {
    router: Router,
    places: Arc<Semaphore>,
    app: Arc<App>,
    limits: ServerLimits,
}

impl Server {
    fn admit(&self, stream: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        match self.places.clone().try_acquire_owned() {
            Ok(place) => self.converse(stream, peer, place, connections),
            Err(_) => drop(connections.spawn(turn_away(stream))),
        }
    }

    fn converse(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        connections: &mut JoinSet<()>,
    ) {
        // Without Nagle's algorithm, small responses are sent at once. Failing to set this is harmless.
        let _ = stream.set_nodelay(true);
        let (connection, pulse) = Connection::new(stream);
        let router = self.router.clone();
        let heartbeat = Heartbeat::new(pulse, self.limits.heartbeat);
        let upgraded_by = UpgradedBy::default();
        let connection = Upgradable { stream: connection, upgraded_by: upgraded_by.clone() };
        let service = service_fn(move |mut request| {
            request.extensions_mut().insert(upgraded_by.clone());
            answer(router.clone(), request, peer, heartbeat.clone())
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_within)
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(connection), service)
            .with_upgrades();
        let mut closing = self.app.closing();
        connections.spawn(async move {
            let mut serving = std::pin::pin!(serving);
            let ended = tokio::select! {
                ended = serving.as_mut() => ended,
                () = closing.reached() => {
                    serving.as_mut().graceful_shutdown();
                    serving.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection failed");
            }
            drop(place);
        });
    }
}

async fn answer(
    router: Router,
    request: hyper::Request<Incoming>,
    peer: SocketAddr,
    heartbeat: Heartbeat,
) -> Result<Response, Infallible> {
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(Peer(peer));
    let wanted = router::wants_interim_responses(request.headers());
    let work = router.oneshot(request);
    if wanted { heartbeat.beside(work).await } else { work.await }
}

async fn turn_away(mut stream: TcpStream) {
    // Give up on a client that does not read this.
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(FULL).await?;
        stream.shutdown().await
    })
    .await;
}

/// The process is probably out of descriptors: wait until other connections end.
async fn wait_out(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_one_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
