//! The server's side of TLS. New files replace the certificate while the server runs.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{CertificateFiles, TlsError};

/// How often the server looks whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// HTTP/2 first. A client that wants a WebSocket asks for HTTP/1.1 only.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Accepts TLS connections. Clones are cheap and share the certificate.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// The certificate for new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl Tls {
    /// Uses a certificate and key from PEM files, and loads them again whenever they change. If the new files cannot
    /// be used, the old certificate stays.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        let current = Arc::new(Current(RwLock::new(Arc::new(files.load()?))));
        let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        tokio::spawn(follow(files, Arc::downgrade(&current)));
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Accepts other nodes, which show a certificate of the fleet's authority. A client without a certificate can join.
    pub(crate) fn for_nodes(config: ServerConfig) -> Self {
        Self(TlsAcceptor::from(Arc::new(config)))
    }

    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.0.accept(stream).await
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Loads the files after each change, as long as there is a server.
async fn follow(files: CertificateFiles, current: Weak<Current>) {
    let mut seen = files.fingerprint();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(current) = current.upgrade() else { return };
        let found = files.fingerprint();
        if found == seen {
            continue;
        }
        match files.load() {
            Ok(loaded) => {
                *current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                tracing::info!(certificate = %files.certificate.display(), "the server uses a new certificate");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the new certificate cannot be used; the server keeps the old one");
            }
        }
        seen = found;
    }
}
