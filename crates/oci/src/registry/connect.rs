//! Connects to addresses that were checked, never to a name that could resolve differently a moment later.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::ServerName;
use sandling_proxy::UpstreamProxy;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::RegistryError;
use super::options::{AllowAddress, Endpoint, RegistryOptions, Role};
use super::tls;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(super) struct Connected {
    pub stream: Box<dyn Stream>,
    /// None if a proxy made the connection.
    pub address: Option<IpAddr>,
}

pub(super) struct Connector {
    tls: TlsConnector,
    allow: AllowAddress,
    insecure: BTreeSet<String>,
    proxy: Option<UpstreamProxy>,
    timeout: Duration,
}

impl Connector {
    pub fn new(options: &RegistryOptions) -> Result<Self, RegistryError> {
        Ok(Self {
            tls: tls::connector(&options.extra_ca)?,
            allow: options.allow.clone(),
            insecure: options.insecure.clone(),
            proxy: options.proxy.clone(),
            timeout: options.timeouts.connect,
        })
    }

    /// Whether `http://` may be used for this host at all.
    pub fn allows_plaintext(&self, endpoint: &Endpoint) -> bool {
        is_loopback_name(&endpoint.host) || self.is_insecure(endpoint)
    }

    fn is_insecure(&self, endpoint: &Endpoint) -> bool {
        self.insecure.contains(&endpoint.host) || self.insecure.contains(&endpoint.to_string())
    }

    /// `registry` is the address of the registry that refers to this endpoint.
    pub async fn connect(
        &self,
        endpoint: &Endpoint,
        scheme: Scheme,
        registry: Option<IpAddr>,
    ) -> Result<Connected, RegistryError> {
        if scheme == Scheme::Http && !self.allows_plaintext(endpoint) {
            return Err(RegistryError::Plaintext { host: endpoint.to_string() });
        }
        let proxied = |proxy: &&UpstreamProxy| scheme == Scheme::Https && proxy.serves(&endpoint.host, endpoint.port);
        if let Some(proxy) = self.proxy.as_ref().filter(proxied) {
            // The proxy resolves the name again, so this check is weaker than the one below.
            if let Ok(addresses) = self.resolve(endpoint).await {
                addresses.iter().try_for_each(|address| self.check(endpoint, scheme, address.ip(), registry))?;
            }
            let tunnel = self.within(endpoint, proxy.connect(&endpoint.host, endpoint.port)).await?;
            let tunnel = tunnel.map_err(|why| unreachable(endpoint, why))?;
            return Ok(Connected { stream: self.secure(endpoint, tunnel).await?, address: None });
        }
        let mut failure = unreachable(endpoint, "the name has no address");
        for address in self.resolve(endpoint).await? {
            let attempt = async {
                self.check(endpoint, scheme, address.ip(), registry)?;
                let connecting = self.within(endpoint, TcpStream::connect(address)).await?;
                connecting.map_err(|error| unreachable(endpoint, error))
            };
            let stream = match attempt.await {
                Ok(stream) => stream,
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let address = Some(address.ip());
            let stream: Box<dyn Stream> = match scheme {
                Scheme::Http => Box::new(stream),
                Scheme::Https => self.secure(endpoint, stream).await?,
            };
            return Ok(Connected { stream, address });
        }
        Err(failure)
    }

    async fn resolve(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, RegistryError> {
        let found = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port));
        let found = self.within(endpoint, found).await?.map_err(|error| unreachable(endpoint, error))?;
        Ok(found.map(|found| SocketAddr::new(found.ip().to_canonical(), found.port())).collect())
    }

    fn check(
        &self,
        endpoint: &Endpoint,
        scheme: Scheme,
        address: IpAddr,
        registry: Option<IpAddr>,
    ) -> Result<(), RegistryError> {
        if scheme == Scheme::Http && !address.is_loopback() && !self.is_insecure(endpoint) {
            return Err(RegistryError::Plaintext { host: endpoint.to_string() });
        }
        let host = endpoint.to_string();
        match endpoint.role {
            Role::Other if registry == Some(address) => Ok(()),
            _ if (self.allow)(endpoint, address) => Ok(()),
            Role::Registry => Err(RegistryError::AddressRefused { host, address }),
            Role::Other => Err(RegistryError::ReferralRefused { host, address }),
        }
    }

    async fn secure(&self, endpoint: &Endpoint, stream: TcpStream) -> Result<Box<dyn Stream>, RegistryError> {
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| unreachable(endpoint, error))?;
        match self.within(endpoint, self.tls.connect(name, stream)).await? {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(handshake_error(endpoint, &error)),
        }
    }

    async fn within<T>(&self, endpoint: &Endpoint, step: impl Future<Output = T>) -> Result<T, RegistryError> {
        let timed_out = |_| RegistryError::TimedOut { host: endpoint.to_string(), after: self.timeout };
        tokio::time::timeout(self.timeout, step).await.map_err(timed_out)
    }
}

fn unreachable(endpoint: &Endpoint, why: impl fmt::Display) -> RegistryError {
    RegistryError::Unreachable { host: endpoint.to_string(), why: why.to_string() }
}

fn handshake_error(endpoint: &Endpoint, error: &std::io::Error) -> RegistryError {
    let host = endpoint.to_string();
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => RegistryError::Untrusted { host, why: why.to_string() },
        Some(why) => RegistryError::NotTls { host, why: why.to_string() },
        None => RegistryError::Broken { host, why: error.to_string() },
    }
}

pub(super) fn is_loopback_name(host: &str) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(is_loopback)
}

/// `host:port`, without the port of `https://`.
impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (false, 443) => formatter.write_str(&self.host),
            (false, port) => write!(formatter, "{}:{port}", self.host),
            (true, 443) => write!(formatter, "[{}]", self.host),
            (true, port) => write!(formatter, "[{}]:{port}", self.host),
        }
    }
}
