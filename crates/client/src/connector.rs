//! Connections to servers, through the proxy of the environment if there is one.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use sandling_proxy::UpstreamProxy;
use tokio::net::TcpStream;
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

/// Connects to http and https addresses, and to the latter through the proxy that `HTTPS_PROXY` names. Loads the system's
/// certificates only for an https address, because that takes longer than most requests.
pub fn connector(address: &str, timeout: Duration) -> Result<HttpsConnector<ProxyConnector>, BoxError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(timeout));
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let builder = if address.starts_with("https:") {
        builder.with_provider_and_native_roots(provider)?
    } else {
        let config =
            rustls::ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions()?;
        builder.with_tls_config(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
    };
    let connector = ProxyConnector { http, proxy: UpstreamProxy::from_environment()?, timeout };
    Ok(builder.https_or_http().enable_http1().wrap_connector(connector))
}

/// Opens TCP connections, directly or through a proxy.
#[derive(Clone)]
pub struct ProxyConnector {
    http: HttpConnector,
    proxy: Option<UpstreamProxy>,
    timeout: Duration,
}

impl Service<Uri> for ProxyConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let is_proxied = uri.scheme_str() == Some("https");
        match self.proxy.clone().filter(|proxy| is_proxied && proxy.serves(&host, port)) {
            None => {
                let connecting = self.http.call(uri);
                Box::pin(async move { Ok(connecting.await?) })
            }
            Some(proxy) => {
                let timeout = self.timeout;
                Box::pin(async move {
                    let connecting = tokio::time::timeout(timeout, proxy.connect(&host, port)).await;
                    Ok(TokioIo::new(connecting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??))
                })
            }
        }
    }
}
