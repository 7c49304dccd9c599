//! The jail's way out: an HTTP proxy that connects to the build's mirrors and to nothing else.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, client::conn::http1 as client};
use hyper_util::rt::TokioIo;
use sandling_proxy::{BadProxy, UpstreamProxy};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use super::mirror::{Mirror, Scheme};

const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How much one build may download. The largest built-in template needs less than a tenth.
const MOST_DOWNLOADED: u64 = 16 << 30;

/// How many refused servers are named.
const MOST_NAMED: usize = 20;

/// Headers that apply to a single connection (RFC 9110, 7.6.1). hyper writes its own.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

type Body = BoxBody<Bytes, hyper::Error>;

pub(super) struct Proxy {
    mirrors: BTreeSet<Mirror>,
    /// The proxies through which the host itself reaches servers.
    http: Option<UpstreamProxy>,
    https: Option<UpstreamProxy>,
    refused: Mutex<BTreeSet<Mirror>>,
    downloaded: Arc<AtomicU64>,
}

impl Proxy {
    pub fn new(mirrors: Vec<Mirror>) -> Result<Arc<Self>, BadProxy> {
        let variable = |names: [&str; 3]| {
            let set = names.iter().find_map(|name| std::env::var(name).ok());
            set.filter(|value| !value.is_empty())
        };
        let direct = variable(["no_proxy", "NO_PROXY", "no_proxy"]).unwrap_or_default();
        let proxy = |names| variable(names).map(|url| UpstreamProxy::new(&url, &direct)).transpose();
        Ok(Arc::new(Self {
            mirrors: mirrors.into_iter().collect(),
            http: proxy(["http_proxy", "HTTP_PROXY", "all_proxy"])?,
            https: proxy(["https_proxy", "HTTPS_PROXY", "all_proxy"])?,
            refused: Mutex::default(),
            downloaded: Arc::default(),
        }))
    }

    /// Serves connections until this process ends.
    pub fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                let proxy = self.clone();
                let answer = service_fn(move |request| proxy.clone().answer(request));
                // A client that breaks off needs no answer.
                let connection = server::Builder::new().serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(connection.with_upgrades());
            }
        })
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let Some(mirror) = Mirror::of_request(request.method(), request.uri()) else {
            return Ok(refusal(StatusCode::BAD_REQUEST, "this is a proxy; ask it for a URL or with CONNECT"));
        };
        if !self.mirrors.contains(&mirror) {
            self.name_refused(&mirror);
            return Ok(refusal(StatusCode::FORBIDDEN, &format!("{mirror} is not one of the build's mirrors")));
        }
        let answered = match mirror.scheme {
            Scheme::Https => self.tunnel(&mirror, request).await,
            Scheme::Http => self.forward(&mirror, request).await,
        };
        Ok(answered
            .unwrap_or_else(|error| refusal(StatusCode::BAD_GATEWAY, &format!("{mirror} cannot be reached: {error}"))))
    }

    async fn tunnel(&self, mirror: &Mirror, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let mut upstream = self.metered(self.connect(mirror, self.https.as_ref()).await?);
        tokio::spawn(async move {
            if let Ok(client) = hyper::upgrade::on(request).await {
                // Either side may end it at any time.
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut upstream).await;
            }
        });
        Ok(Response::new(body("")))
    }

    async fn forward(&self, mirror: &Mirror, request: Request<Incoming>) -> io::Result<Response<Body>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are forwarded"));
        }
        let (mut parts, _) = request.into_parts();
        let host_proxy = self.http.as_ref().filter(|proxy| proxy.serves(&mirror.host, mirror.port));
        remove_hop_by_hop(&mut parts.headers);
        // What the URL says counts, not a header that could differ.
        let authority =
            parts.uri.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        let host = HeaderValue::from_str(authority.unwrap_or_default()).map_err(io::Error::other)?;
        parts.headers.insert(HOST, host);
        let upstream = match host_proxy {
            Some(proxy) => {
                if let Some(authorization) = proxy.authorization() {
                    let authorization = HeaderValue::from_str(authorization).map_err(io::Error::other)?;
                    parts.headers.insert(PROXY_AUTHORIZATION, authorization);
                }
                within(proxy.dial()).await?
            }
            None => {
                let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
                parts.uri = path.parse::<Uri>().map_err(io::Error::other)?;
                self.connect(mirror, None).await?
            }
        };
        let (mut sender, connection) =
            client::handshake(TokioIo::new(self.metered(upstream))).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = Request::from_parts(parts, body(""));
        let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
        remove_hop_by_hop(response.headers_mut());
        Ok(response.map(BodyExt::boxed))
    }

    async fn connect(&self, mirror: &Mirror, host_proxy: Option<&UpstreamProxy>) -> io::Result<TcpStream> {
        match host_proxy.filter(|proxy| proxy.serves(&mirror.host, mirror.port)) {
            Some(proxy) => within(proxy.connect(&mirror.host, mirror.port)).await,
            None => within(TcpStream::connect((mirror.host.as_str(), mirror.port))).await,
        }
    }

    fn metered(&self, stream: TcpStream) -> impl AsyncRead + AsyncWrite + Unpin + Send + use<> {
        let (reader, writer) = stream.into_split();
        tokio::io::join(Metered { reader, downloaded: self.downloaded.clone() }, writer)
    }

    /// Says once which server was refused. The line is part of the build's error, if the build fails.
    fn name_refused(&self, mirror: &Mirror) {
        let mut refused = self.refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if refused.len() < MOST_NAMED && refused.insert(mirror.clone()) {
            eprintln!("E: the build may not connect to {mirror}, which is not one of its package mirrors");
        }
    }
}

/// The bytes from a mirror, as long as the build has not downloaded too much.
struct Metered {
    reader: OwnedReadHalf,
    downloaded: Arc<AtomicU64>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        match self.downloaded.fetch_add(read, Ordering::Relaxed) + read {
            ..=MOST_DOWNLOADED => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::Error::other("the build downloads too much"))),
        }
    }
}

async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECT_LIMIT, step).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
}

fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(body(why));
    *response.status_mut() = status;
    response
}

fn body(text: &str) -> Body {
    Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed()
}
