//! Accepts connections, passes their requests to the router, and drains them at shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use futures_util::future::select_all;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandling_service::{GarbageCollector, record_metrics};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::heartbeat::Heartbeat;
use super::listener::Listener;
use super::pool::{Pool, PoolLimits};
use super::pulsed::Pulsed;
use super::respond::Client;
use super::socket::{Socket, TcpPlace};
use super::upgraded::Upgradable;
use crate::app::App;
use crate::closing::Closing;
use crate::forwarded::TrustedProxies;
use crate::live_requests::UpgradedBy;
use crate::peer::{Route, Sender};
use crate::router;
use crate::tls::{Tls, machine_of};
use crate::webhook_sender::send_webhooks;

/// Limits for clients of the server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// The most connections. Half of them at most belong to clients whose last request had no valid token.
    pub connections: usize,
    /// The most connections of one address, or of one /64 of IPv6, whose last request had no valid token. Clients on
    /// this machine have no such limit.
    pub untrusted_per_address: usize,
    /// Reverse proxies, which say who their clients are. The limit of one address does not apply to them.
    pub proxies: TrustedProxies,
    /// How long a client may take to connect and to send a request's head.
    pub head_within: Duration,
    /// The idle timeout of a connection whose last request had a valid token.
    pub idle: Duration,
    /// The idle timeout of all other connections.
    pub untrusted_idle: Duration,
    /// How long running requests may take to finish at shutdown.
    pub drain_within: Duration,
    /// The interval of interim responses, for clients with a short read timeout.
    pub heartbeat: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            untrusted_per_address: 256,
            proxies: TrustedProxies::default(),
            head_within: Duration::from_secs(10),
            // E2B's clients keep connections for 300 s.
            idle: Duration::from_secs(330),
            untrusted_idle: Duration::from_secs(60),
            drain_within: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
        }
    }
}

/// How often abandoned uploads are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// How often requests in progress are checked for tokens that have expired, or that another process has revoked.
const CHECK_TOKENS_EVERY: Duration = Duration::from_secs(1);
/// Connections over the limit that get a response. Further ones are closed without it.
const MOST_REFUSALS: usize = 64;

/// The largest head of a request.
const MAX_HEAD: usize = 64 * 1024;

/// Requests that one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 256;
/// Requests of an HTTP/2 connection that the client may cancel before the server has looked at them. A client that
/// cancels more is disconnected.
const MAX_RESETS: usize = 32;
/// Requests of an HTTP/2 connection that may break the protocol.
const MAX_PROTOCOL_ERRORS: usize = 128;
/// An HTTP/2 client that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// Sent without reading the request, so that a connection over the limit costs almost nothing.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 63\r\n\r\n{\"error\":\"too many connections\",\"code\":\"too_many_connections\"}\n";

/// Serves until `shutdown` completes, then waits for running requests.
pub async fn serve(listeners: Vec<Listener>, app: Arc<App>, limits: ServerLimits, shutdown: impl Future<Output = ()>) {
    listeners.iter().filter_map(Listener::public_domain).for_each(|domain| app.set_domain(domain));
    let total = limits.connections.min(descriptors() / 2);
    let server = Server {
        router: router::build(app.clone()),
        pool: Pool::new(PoolLimits {
            total,
            untrusted: total.div_ceil(2),
            untrusted_per_address: limits.untrusted_per_address,
            proxies: limits.proxies.clone(),
            head: limits.head_within,
            idle: limits.idle,
            untrusted_idle: limits.untrusted_idle,
        }),
        http: http(),
        app,
        limits,
    };
    let builds = server.app.service.builds.clone();
    tokio::spawn(async move { builds.clean_up().await });
    let mut background = JoinSet::new();
    background.spawn(record_metrics(server.app.service.metrics.clone(), server.app.engine.clone()));
    background.spawn(send_webhooks(server.app.service.webhooks.clone()));
    background.spawn(collect_garbage(server.app.service.garbage.clone()));
    let (mut connections, mut refusals) = (JoinSet::new(), JoinSet::new());
    let mut sweeps = tokio::time::interval(SWEEP_EVERY);
    let mut revocations = tokio::time::interval(CHECK_TOKENS_EVERY);
    let mut deadlines = tokio::time::interval(server.limits.head_within.min(Duration::from_secs(4)) / 4);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            (permit, accepted, listener) = accept(&listeners, &server.pool) => match accepted {
                Ok((stream, peer)) => server.admit(listener, stream, peer, permit, &mut connections, &mut refusals),
                Err(error) => wait_out(&error).await,
            },
            Some(_) = connections.join_next() => {}
            _ = revocations.tick() => server.app.end_unauthorized(),
            Some(_) = refusals.join_next() => {}
            _ = deadlines.tick() => server.pool.close_expired(Instant::now()),
            _ = sweeps.tick() => server.app.service.builds.uploads.forget_unused(),
            () = &mut shutdown => break,
        }
    }
    drop(listeners);
    background.shutdown().await;
    server.app.close_streams();
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(server.limits.drain_within, drained).await.is_err() {
        tracing::warn!("shutdown: unfinished requests are aborted");
    }
    connections.shutdown().await;
}

async fn collect_garbage(garbage: Arc<GarbageCollector>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        garbage.collect().await;
    }
}

async fn accept<'l>(
    listeners: &'l [Listener],
    pool: &TcpPool,
) -> (OwnedSemaphorePermit, io::Result<(TcpStream, SocketAddr)>, &'l Listener) {
    let permit = pool.may_accept().await;
    let accepting = listeners.iter().map(|listener| Box::pin(async move { (listener.accept().await, listener) }));
    let (accepted, listener) = select_all(accepting).await.0;
    (permit, accepted, listener)
}

/// HTTP/1.1 and HTTP/2. The pool has the deadlines, because those of hyper do not tell a slow client from an idle one.
fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD as u32)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_PROTOCOL_ERRORS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    builder
}

/// Raises the limit of file descriptors and returns it. The caller uses only half for connections, because virtual
/// machines need descriptors, too.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let granted = if setrlimit(Resource::Nofile, most).is_ok() { limit.maximum } else { limit.current };
    granted.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

type TcpPool = Pool<Arc<TcpStream>>;

struct Server {
    router: Router,
    pool: Arc<TcpPool>,
    http: auto::Builder<TokioExecutor>,
    app: Arc<App>,
    limits: ServerLimits,
}

impl Server {
    fn admit(
        &self,
        listener: &Listener,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        connections: &mut JoinSet<()>,
        refusals: &mut JoinSet<()>,
    ) {
        // Without Nagle's algorithm, small responses are sent at once. Failing to set this is harmless.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        match self.pool.admit(peer.ip(), stream.clone(), permit, Instant::now()) {
            Ok(place) => {
                let connection = self.connection(Arc::new(place), self.route(listener, peer));
                connections.spawn(connection.run(stream, listener.tls.clone()));
            }
            // A client that expects TLS could not read the response.
            Err(_) if listener.tls.is_some() || refusals.len() >= MOST_REFUSALS => {}
            Err((_, socket)) => {
                drop(socket);
                refusals.spawn(turn_away(stream));
            }
        }
    }

    fn route(&self, listener: &Listener, peer: SocketAddr) -> Route {
        let route = listener.route(peer);
        let is_proxy = route.sender == Sender::Client && self.limits.proxies.contains(peer.ip());
        if is_proxy { Route { sender: Sender::Proxy, ..route } } else { route }
    }

    fn connection(&self, place: Arc<TcpPlace>, route: Route) -> Connection {
        Connection {
            proxies: self.limits.proxies.clone(),
            router: self.router.clone(),
            http: self.http.clone(),
            closing: self.app.closing(),
            beat_every: self.limits.heartbeat,
            place,
            route,
        }
    }
}

/// One accepted connection.
struct Connection {
    router: Router,
    http: auto::Builder<TokioExecutor>,
    closing: Closing,
    beat_every: Duration,
    place: Arc<TcpPlace>,
    route: Route,
    proxies: TrustedProxies,
}

impl Connection {
    async fn run(mut self, stream: Arc<TcpStream>, tls: Option<Tls>) {
        let peer = self.route.address;
        let socket = Socket::new(stream, self.place.clone());
        let ended = match tls {
            None => self.converse(socket).await,
            Some(tls) => {
                let mut closing = self.closing.clone();
                let accepted = tokio::select! {
                    accepted = tls.accept(socket) => accepted,
                    () = closing.reached() => return,
                };
                match accepted {
                    Ok(stream) => {
                        let machine = machine_of(stream.get_ref().1.peer_certificates());
                        if let (Sender::Stranger, Some(machine)) = (&self.route.sender, machine) {
                            self.route.sender = Sender::Node(machine.into());
                        }
                        self.converse(stream).await
                    }
                    Err(error) => Err(error.into()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection failed");
        }
    }

    async fn converse<S>(self, stream: S) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, http, mut closing, beat_every, place, route, proxies } = self;
        let (stream, pulse) = Pulsed::new(stream);
        let upgraded_by = UpgradedBy::default();
        let stream = Upgradable { stream, upgraded_by: upgraded_by.clone() };
        let heartbeat = Heartbeat::new(pulse, beat_every);
        let client = Client { router, place, route, proxies, upgraded_by, heartbeat };
        let service = service_fn(move |request| client.clone().answer(request));
        let mut serving = std::pin::pin!(http.serve_connection_with_upgrades(TokioIo::new(stream), service));
        tokio::select! {
            ended = serving.as_mut() => ended,
            () = closing.reached() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    }
}

async fn turn_away(stream: Arc<TcpStream>) {
    let Ok(mut stream) = Arc::try_unwrap(stream) else { return };
    // Give up on a client that does not read this.
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(FULL).await?;
        stream.shutdown().await
    })
    .await;
}

/// The process is probably out of descriptors: wait until other connections end.
async fn wait_out(error: &io::Error) {
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
