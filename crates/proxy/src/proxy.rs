//! Which hosts are reached through the proxy, and the tunnel to them.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest response to CONNECT.
const LONGEST_RESPONSE: usize = 8 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a proxy: write `http://host:port`, or `http://user:password@host:port`")]
pub struct BadProxy(String);

/// An HTTP proxy that opens tunnels with CONNECT. It resolves names itself, so it must be one that refuses addresses that
/// tenants may not reach.
#[derive(Clone)]
pub struct UpstreamProxy {
    host: String,
    port: u16,
    authorization: Option<String>,
    direct: Vec<String>,
}

/// Never shows the password.
impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UpstreamProxy({}:{})", self.host, self.port)
    }
}

impl UpstreamProxy {
    /// `no_proxy` is a list in the format of the environment variable of this name.
    pub fn new(url: &str, no_proxy: &str) -> Result<Self, BadProxy> {
        let bad = || BadProxy(without_password(url));
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| bad())?;
        if uri.scheme_str() != Some("http") {
            return Err(bad());
        }
        let authority = uri.authority().ok_or_else(bad)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| percent_decode_str(user).collect::<Vec<u8>>());
        let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(user)));
        let direct = no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        let direct = direct.filter(|entry| !entry.is_empty()).collect();
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authorization, direct })
    }

    /// The proxy that `HTTPS_PROXY` names, if it does.
    pub fn from_environment() -> Result<Option<Self>, BadProxy> {
        match variable(["HTTPS_PROXY", "https_proxy"]) {
            none if none.is_empty() => Ok(None),
            url => Self::with_exceptions_of_environment(&url).map(Some),
        }
    }

    /// The proxy at `url`, except for the hosts in `NO_PROXY`.
    pub fn with_exceptions_of_environment(url: &str) -> Result<Self, BadProxy> {
        Self::new(url, &variable(["NO_PROXY", "no_proxy"]))
    }

    /// Loopback and the hosts of NO_PROXY are connected to directly.
    pub fn serves(&self, host: &str, port: u16) -> bool {
        !is_loopback_name(host) && !self.direct.iter().any(|entry| matches(entry, host, port))
    }

    /// A connection through the proxy.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut stream = self.dial().await?;
        self.open_tunnel(&mut stream, host, port).await?;
        Ok(stream)
    }

    /// A connection to the proxy itself.
    pub async fn dial(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| self.failed(error))?;
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Turns a connection to the proxy into one to `host`.
    pub async fn open_tunnel(&self, stream: &mut TcpStream, host: &str, port: u16) -> io::Result<()> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await.map_err(|error| self.failed(error))?;
        // One byte at a time, because the bytes after the empty line belong to the server.
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            if response.len() == LONGEST_RESPONSE {
                return Err(io::Error::other("the proxy's response is too long"));
            }
            response.push(stream.read_u8().await.map_err(|error| self.failed(error))?);
        }
        let line = String::from_utf8_lossy(&response);
        let line = line.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(status) if status.len() == 3 && status.starts_with('2') => Ok(()),
            _ => {
                let refusal = format!("the proxy refused: {}", line.chars().take(100).collect::<String>());
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, refusal))
            }
        }
    }

    /// The `Proxy-Authorization` header, for requests that are sent to the proxy without a tunnel.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    fn failed(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("the proxy {}:{} failed: {error}", self.host, self.port))
    }
}

fn variable(names: [&str; 2]) -> String {
    names.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default()
}

/// Whether a name or an address is this host's own.
fn is_loopback_name(host: &str) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(is_loopback)
}

/// Understands `*`, names with their subdomains, addresses, networks, and `host:port`.
fn matches(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" || entry == host || *entry == format!("{host}:{port}") {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return entry.parse::<IpNet>().is_ok_and(|net| net.contains(&address));
    }
    let domain = entry.trim_start_matches("*.").trim_start_matches('.');
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn without_password(url: &str) -> String {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_names_hosts_domains_networks_and_ports() {
        let no_proxy = "a.com, .b.com,10.0.0.0/8,c.com:5000,*.d.com";
        let proxy = UpstreamProxy::new("http://me:p%77@proxy.lan:3128", no_proxy).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.lan", 3128));
        assert_eq!(proxy.authorization(), Some("Basic bWU6cHc="));
        for direct in ["a.com", "x.a.com", "b.com", "x.b.com", "10.1.2.3", "localhost", "127.0.0.1", "x.d.com"] {
            assert!(!proxy.serves(direct, 443), "{direct}");
        }
        assert!(!proxy.serves("c.com", 5000));
        for proxied in ["c.com", "nota.com", "11.0.0.1"] {
            assert!(proxy.serves(proxied, 443), "{proxied}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let error = UpstreamProxy::new("socks5://me:pw@x:1", "").unwrap_err().to_string();
        assert!(error.contains("x:1") && !error.contains("pw"), "{error}");
        let shown = format!("{:?}", UpstreamProxy::new("http://me:pw@x:1", "").unwrap());
        assert_eq!(shown, "UpstreamProxy(x:1)");
    }
}
