//! An HTTP proxy between this server and the registries.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use ipnet::IpNet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connect::is_loopback_name;
use super::error::RegistryError;
use super::options::Endpoint;

/// The longest answer to CONNECT.
const LONGEST_ANSWER: usize = 8 * 1024;

/// Serves `https://` only, with CONNECT. The proxy resolves names itself, so it must be one that refuses addresses that
/// tenants may not reach.
#[derive(Clone)]
pub struct Proxy {
    host: String,
    port: u16,
    authorization: Option<String>,
    direct: Vec<String>,
}

impl Proxy {
    /// `https_proxy` and `no_proxy` are the values of the environment variables of these names.
    pub fn new(https_proxy: &str, no_proxy: &str) -> Result<Self, RegistryError> {
        let bad = || RegistryError::BadProxy(without_password(https_proxy));
        let with_scheme = match https_proxy.contains("://") {
            true => https_proxy.to_owned(),
            false => format!("http://{https_proxy}"),
        };
        let uri: Uri = with_scheme.parse().map_err(|_| bad())?;
        if uri.scheme_str() != Some("http") {
            return Err(bad());
        }
        let authority = uri.authority().ok_or_else(bad)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| format!("Basic {}", STANDARD.encode(user)));
        let direct = no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        let direct = direct.filter(|entry| !entry.is_empty()).collect();
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authorization: user, direct })
    }

    /// Loopback and the hosts of NO_PROXY are connected to directly.
    pub fn serves(&self, endpoint: &Endpoint) -> bool {
        !is_loopback_name(&endpoint.host) && !self.direct.iter().any(|entry| matches(entry, endpoint))
    }

    /// Where the proxy is.
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The value of `Proxy-Authorization`.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// A connection to the endpoint, made with CONNECT.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<TcpStream, String> {
        let failed = |error: std::io::Error| format!("the proxy {}:{} failed: {error}", self.host, self.port);
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        let host = if endpoint.host.contains(':') { format!("[{}]", endpoint.host) } else { endpoint.host.clone() };
        let mut request = format!("CONNECT {host}:{0} HTTP/1.1\r\nHost: {host}:{0}\r\n", endpoint.port);
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await.map_err(failed)?;
        // One byte at a time, because the bytes after the empty line belong to the registry.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == LONGEST_ANSWER {
                return Err("the proxy's answer is too long".to_owned());
            }
            answer.push(stream.read_u8().await.map_err(failed)?);
        }
        let line = String::from_utf8_lossy(&answer);
        let line = line.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(status) if status.len() == 3 && status.starts_with('2') => Ok(stream),
            _ => Err(format!("the proxy refused: {}", line.chars().take(100).collect::<String>())),
        }
    }
}

/// Understands `*`, names with their subdomains, addresses, networks, and `host:port`.
fn matches(entry: &str, endpoint: &Endpoint) -> bool {
    if entry == "*" || entry == endpoint.host || *entry == format!("{}:{}", endpoint.host, endpoint.port) {
        return true;
    }
    if let Ok(address) = endpoint.host.parse::<IpAddr>() {
        return entry.parse::<IpNet>().is_ok_and(|net| net.contains(&address));
    }
    let domain = entry.trim_start_matches("*.").trim_start_matches('.');
    endpoint.host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn without_password(url: &str) -> String {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::options::Role;
    use super::*;

    #[test]
    fn no_proxy_names_hosts_domains_networks_and_ports() {
        let proxy = Proxy::new("http://me:pw@proxy.lan:3128", "a.com, .b.com,10.0.0.0/8,c.com:5000,*.d.com").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.lan", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some("Basic bWU6cHc="));
        let serves = |host: &str, port| proxy.serves(&Endpoint { host: host.to_owned(), port, role: Role::Registry });
        for direct in ["a.com", "x.a.com", "b.com", "x.b.com", "10.1.2.3", "localhost", "127.0.0.1", "x.d.com"] {
            assert!(!serves(direct, 443), "{direct}");
        }
        assert!(!serves("c.com", 5000));
        for proxied in ["c.com", "nota.com", "11.0.0.1"] {
            assert!(serves(proxied, 443), "{proxied}");
        }
        let error = Proxy::new("socks5://me:pw@x:1", "").err().unwrap().to_string();
        assert!(error.contains("x:1") && !error.contains("pw"), "{error}");
    }
}
