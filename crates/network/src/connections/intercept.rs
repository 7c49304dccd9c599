//! Intercepts a TLS connection between the guest and a server. The gateway verifies the server as any client would, and
//! presents a certificate of the sandbox's authority to the guest. Between the two it relays HTTP/1.1 only.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::destination::End;
use crate::event::{EventKind, Failure, Verdict};
use crate::http;
use crate::name::HostName;
use crate::session::Session;
use crate::tcp::{GuestStream, Prefixed};
use crate::tls::Interceptor;

/// Intercepts the connection to `name` whose client hello is `first`, and relays its requests.
pub(super) async fn intercept(
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
    let patience = session.shared.meters.limits().greeting;
    // Connect to the server first. If its certificate is not valid, the guest gets no handshake.
    let connecting = TlsConnector::from(interceptor.client.clone()).connect(server_name, stream);
    let upstream = match timeout(patience, connecting).await {
        Ok(Ok(upstream)) => upstream,
        Ok(Err(error)) => {
            tracing::debug!(%name, %error, "the TLS handshake with the server failed");
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
            tracing::debug!(%name, %error, "the TLS handshake with the guest failed");
            return Err(failed(Failure::GuestTls));
        }
        Err(_) => return Err(failed(Failure::TimedOut)),
    };
    http::relay(session, Some(name), None, guest, upstream).await
}
