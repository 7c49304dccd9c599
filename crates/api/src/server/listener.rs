//! Where the server listens, and what clients must know to reach it there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use super::tls::Tls;
use crate::peer::Route;

const HTTPS_PORT: u16 = 443;

pub struct Listener {
    listener: TcpListener,
    pub(super) tls: Option<Tls>,
    domain: Option<Arc<str>>,
}

impl Listener {
    pub fn plain(listener: TcpListener) -> Self {
        Self { listener, tls: None, domain: None }
    }

    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The domain of the API and of ports: `D`, `api.D` and `{port}-{sandbox}.D`.
    pub fn at_domain(self, domain: &str) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// The domain as clients must write it. Without TLS a proxy adds it, at a port that only the proxy knows.
    pub(super) fn public_domain(&self) -> Option<String> {
        let (domain, port) = (self.domain.as_ref()?, self.listener.local_addr().ok()?.port());
        let is_default = self.tls.is_none() || port == HTTPS_PORT;
        Some(if is_default { domain.to_string() } else { format!("{domain}:{port}") })
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    pub(super) fn route(&self, address: SocketAddr) -> Route {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Route { address, scheme, domain: self.domain.clone() }
    }
}
