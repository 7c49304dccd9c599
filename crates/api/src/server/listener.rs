//! Where the server listens, and what clients must know to reach it there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use crate::peer::{Route, Sender};
use crate::tls::Tls;

const HTTPS_PORT: u16 = 443;

pub struct Listener {
    listener: TcpListener,
    pub(super) tls: Option<Tls>,
    domain: Option<Arc<str>>,
    for_nodes: bool,
}

impl Listener {
    pub fn plain(listener: TcpListener) -> Self {
        Self { listener, tls: None, domain: None, for_nodes: false }
    }

    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// For the other nodes of a fleet.
    pub fn for_nodes(listener: TcpListener, tls: Tls) -> Self {
        Self { listener, tls: Some(tls), domain: None, for_nodes: true }
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
        let sender = if self.for_nodes { Sender::Stranger } else { Sender::Client };
        Route { address, scheme, domain: self.domain.clone(), sender, is_passed_on: false }
    }
}
