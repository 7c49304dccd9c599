//! The HTTP client of S3: the one that the workspace has already, with the certificates that this process trusts and through
//! the proxy that `HTTPS_PROXY` names.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Uri;
use hyper::body::{Body, Frame, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use sandling_proxy::UpstreamProxy;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::error::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// From the request, or the last part of its body, to the head of the response.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The same for what is stored: on a slow line, the kernel takes a while for what it has taken of the body.
const STORED_WITHIN: Duration = Duration::from_secs(120);

/// Clones share their connections.
#[derive(Clone)]
pub(super) struct Connector {
    client: Client<HttpsConnector<Dial>, WatchedBody>,
    stored_within: Duration,
}

/// When something of a request was last sent.
#[derive(Clone)]
struct LastSent(Arc<Mutex<Instant>>);

impl LastSent {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when nothing was sent for so long.
    async fn silent_for(&self, limit: Duration) {
        loop {
            let until = *self.lock() + limit;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A body that notes when a part of it is sent.
struct WatchedBody {
    body: HttpRequestBody,
    last_sent: LastSent,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        *self.last_sent.lock() = Instant::now();
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Connector")
    }
}

impl Connector {
    pub(super) fn new() -> Result<Self, StoreError> {
        let proxy = UpstreamProxy::from_environment().map_err(|error| StoreError::Tls(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let https = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
        let https = https.map_err(|error| StoreError::Tls(error.to_string()))?;
        let https = https.https_or_http().enable_http1().wrap_connector(Dial(Arc::new(proxy)));
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(https), stored_within: STORED_WITHIN })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |error: hyper_util::client::legacy::Error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
            HttpError::new(kind, error)
        };
        let limit = if request.body().is_end_stream() { ANSWER_WITHIN } else { self.stored_within };
        let last_sent = LastSent::now();
        let request = request.map(|body| WatchedBody { body, last_sent: last_sent.clone() });
        let response = tokio::select! {
            answered = self.client.request(request) => answered.map_err(failed)?,
            () = last_sent.silent_for(limit) => {
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Err(HttpError::new(HttpErrorKind::Timeout, late));
            }
        };
        let broken = |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}

/// Connects directly or through the proxy.
#[derive(Clone)]
struct Dial(Arc<Option<UpstreamProxy>>);

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let proxy = self.0.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
            let is_https = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            let connecting = async {
                match proxy.as_ref().as_ref().filter(|proxy| is_https && proxy.serves(host, port)) {
                    Some(proxy) => proxy.connect(host, port).await,
                    None => TcpStream::connect((host, port)).await,
                }
            };
            let stream = tokio::time::timeout(CONNECT_WITHIN, connecting).await.map_err(std::io::Error::from)??;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use object_store::PutPayload;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);
    const BODY: usize = 64 << 20;
    const PART: usize = 64 << 10;

    /// A server that reads a body at this pace, and how long a client needs for it.
    async fn put(pause: Duration) -> (Result<HttpResponse, HttpError>, Duration) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let mut buffer = vec![0; 1 << 20];
            for _ in 0..BODY / buffer.len() {
                tokio::time::sleep(pause).await;
                stream.read_exact(&mut buffer).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
        });
        let connector = Connector { stored_within: LIMIT, ..Connector::new().unwrap() };
        let part = Bytes::from(vec![7; PART]);
        let body: PutPayload = (0..BODY / PART).map(|_| part.clone()).collect();
        let request = hyper::Request::put(format!("http://{address}/")).body(HttpRequestBody::from(body)).unwrap();
        let begun = Instant::now();
        let answered = connector.call(request).await;
        server.abort();
        (answered, begun.elapsed())
    }

    #[tokio::test]
    async fn a_body_may_take_long_as_long_as_something_of_it_is_sent() {
        let (answered, took) = put(Duration::from_millis(75)).await;
        assert!(answered.unwrap().status().is_success());
        assert!(took > 2 * LIMIT, "{took:?}");
        let (stuck, took) = put(Duration::from_secs(3600)).await;
        assert_eq!(stuck.unwrap_err().kind(), HttpErrorKind::Timeout);
        assert!(took < Duration::from_secs(600), "{took:?}");
    }
}
