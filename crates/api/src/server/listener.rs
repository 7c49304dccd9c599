//! Where the server listens, and what clients must know to reach it there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use super::tls::Tls;
use crate::peer::Route;

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

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    pub(super) fn route(&self, address: SocketAddr) -> Route {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Route { address, scheme, domain: self.domain.clone() }
    }
}
