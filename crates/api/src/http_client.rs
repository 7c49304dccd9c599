//! HTTP requests of the server itself, over a connection that the caller opens.

use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Sends a request to the server at the other end of a connection and returns the status. The rest of the response is
/// not read.
pub(crate) async fn send(
    stream: TcpStream,
    tls: Option<(&TlsConnector, &str)>,
    request: Request<Full<Bytes>>,
) -> Result<u16, String> {
    let Some((tls, host)) = tls else { return exchange(stream, request).await };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream = tls.connect(name, stream).await.map_err(|error| format!("the TLS handshake failed: {error}"))?;
    exchange(stream, request).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<u16, String> {
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // The connection ends with this set, also after a timeout.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let response = sender.send_request(request).await.map_err(broken)?;
    Ok(response.status().as_u16())
}

/// Checks the certificates of servers against those that the host trusts.
pub(crate) fn tls_connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
