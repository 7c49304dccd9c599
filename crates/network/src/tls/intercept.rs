//! Opens a TLS connection between the guest and a server: to the guest the sandbox's authority vouches, the server is
//! verified as any client would, and between the two is HTTP/1.1 and nothing else.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::authority::Authority;
use super::roots::{RootsError, TrustRoots};
use crate::destination::End;
use crate::event::{EventKind, Failure, Verdict};
use crate::http;
use crate::name::HostName;
use crate::tcp::{GuestStream, Prefixed, Session};

/// What opening TLS needs.
pub(crate) struct Interceptor {
    authority: Arc<Authority>,
    client: Arc<ClientConfig>,
}

impl Interceptor {
    pub fn new(authority: Arc<Authority>, roots: &TrustRoots) -> Result<Interceptor, RootsError> {
        Ok(Interceptor { authority, client: Arc::new(roots.client()?) })
    }

    fn server(&self, name: &HostName) -> Option<ServerConfig> {
        let certified =
            self.authority.certify(name).inspect_err(|error| tracing::error!(%error, "no certificate")).ok()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(One(certified)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some(config)
    }
}

/// Always the same certificate: the name was judged before.
#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Opens the connection to `name` whose greeting is `first`, and relays its requests.
pub(crate) async fn intercept(
    session: &Session,
    interceptor: &Interceptor,
    name: HostName,
    stream: TcpStream,
    first: Vec<u8>,
) -> Result<End, End> {
    let failed = |why: Failure| {
        session.note(EventKind::Name, Verdict::Failed(why), Some(name.clone()));
        End::Failed(why)
    };
    let server_name = ServerName::try_from(name.to_string()).map_err(|_| failed(Failure::ServerTls))?;
    let patience = session.shared.limits().greeting;
    // The server first: if it is not who it should be, the guest is not even greeted.
    let connecting = TlsConnector::from(interceptor.client.clone()).connect(server_name, stream);
    let upstream = match timeout(patience, connecting).await {
        Ok(Ok(upstream)) => upstream,
        Ok(Err(error)) => {
            tracing::debug!(%name, %error, "the server's TLS does not hold");
            return Err(failed(Failure::ServerTls));
        }
        Err(_) => return Err(failed(Failure::TimedOut)),
    };
    let config = interceptor.server(&name).ok_or_else(|| failed(Failure::GuestTls))?;
    let guest = Prefixed::new(first, GuestStream::metered(session.connection.clone(), session.traffic.clone()));
    let accepting = TlsAcceptor::from(Arc::new(config)).accept(guest);
    let guest = match timeout(patience, accepting).await {
        Ok(Ok(guest)) => guest,
        Ok(Err(error)) => {
            tracing::debug!(%name, %error, "the guest does not accept its authority");
            return Err(failed(Failure::GuestTls));
        }
        Err(_) => return Err(failed(Failure::TimedOut)),
    };
    http::relay_opened(session, name, guest, upstream).await
}
