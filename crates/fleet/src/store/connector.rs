//! The HTTP client of S3: the one that the workspace has already, with the certificates that this process trusts and through
//! the proxy that `HTTPS_PROXY` names.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::Uri;
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
use tower_service::Service;

use super::error::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// From the request to the head of the response.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Clones share their connections.
#[derive(Clone)]
pub(super) struct Connector(Client<HttpsConnector<Dial>, HttpRequestBody>);

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
        Ok(Self(Client::builder(TokioExecutor::new()).build(https)))
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
        let answered = tokio::time::timeout(ANSWER_WITHIN, self.0.request(request)).await;
        let response = answered.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?.map_err(failed)?;
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
