//! How clients reach `sandling serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use sandling_service::{AuditPolicy, AuditSettings, AuditTarget};

#[derive(Debug, Args)]
pub struct Listening {
    /// Address to listen on. Any address except loopback requires SANDLING_TOKEN to be set, and TLS or --insecure
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT", env = "SANDLING_LISTEN")]
    pub listen: SocketAddr,
    /// Serve HTTPS with a certificate that Sandling creates; `serve` prints how clients trust it
    #[arg(long, value_name = "self", conflicts_with_all = ["tls_cert", "tls_key"])]
    pub tls: Option<TlsChoice>,
    /// Serve HTTPS with this certificate chain (PEM); a changed file is loaded without a restart
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Domain of the server: the API is at D and api.D, and ports of sandboxes are at PORT-ID.D [default with --tls
    /// self: sandling.localhost]
    #[arg(long, value_name = "D", value_parser = domain)]
    pub domain: Option<String>,
    /// Allow plain HTTP on an address that other machines can reach, for example behind a proxy with TLS
    #[arg(long)]
    pub insecure: bool,
    /// Address or network of a reverse proxy, whose X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host are believed;
    /// may be repeated
    #[arg(long = "trusted-proxy", value_name = "ADDRESS", env = "SANDLING_TRUSTED_PROXIES", value_delimiter = ',',
        value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsChoice {
    #[value(name = "self")]
    SelfMade,
}

/// How `sandling serve` writes its audit log.
#[derive(Debug, Args)]
pub struct AuditChoices {
    /// What to do with actions that cannot be audited: run them and write their entries later, or refuse them
    #[arg(long, value_enum, value_name = "POLICY", env = "SANDLING_AUDIT", default_value = "best-effort")]
    pub audit: AuditPolicyChoice,
    /// Append every entry of the audit log to this file as a line of JSON; `-` is the standard output
    #[arg(long, value_name = "FILE", env = "SANDLING_AUDIT_FILE")]
    pub audit_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditPolicyChoice {
    BestEffort,
    Required,
}

impl AuditChoices {
    pub fn settings(&self) -> AuditSettings {
        let policy = match self.audit {
            AuditPolicyChoice::BestEffort => AuditPolicy::BestEffort,
            AuditPolicyChoice::Required => AuditPolicy::Required,
        };
        let target = self.audit_file.as_ref().map(|path| match path.to_str() {
            Some("-") => AuditTarget::Stdout,
            _ => AuditTarget::File(path.clone()),
        });
        AuditSettings { policy, target, ..AuditSettings::default() }
    }
}

impl Listening {
    pub fn has_tls(&self) -> bool {
        self.tls.is_some() || self.tls_cert.is_some()
    }
}

/// Parses a network, or an address as the network of this address alone.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical()));
    text.parse()
        .or_else(|_| address())
        .map_err(|_| "write an IP address or a network, such as 10.0.0.5 or 10.0.0.0/24".to_owned())
}

/// Parses a domain name. A port in it belongs to `--listen`.
fn domain(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let is_label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    // A port's host name has another label of up to 42 bytes in front.
    if name.len() <= 200 && name.contains('.') && name.split('.').all(is_label) {
        Ok(name)
    } else {
        Err("write a domain name with at least one period and without a port, such as sandling.example.org".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_below_which_ports_get_names() {
        assert_eq!(domain("Sandling.Example.org.").unwrap(), "sandling.example.org");
        for bad in ["", "localhost", "a.b:8443", "https://a.b", "*.a.b", "-a.b", "a..b", "a_b.c"] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_trusted_proxy_is_an_address_or_a_network() {
        for (text, is) in [("10.0.0.5", "10.0.0.5/32"), ("10.0.0.0/24", "10.0.0.0/24"), ("::1", "::1/128")] {
            assert_eq!(network(text).unwrap().to_string(), is);
        }
        for bad in ["", "proxy.example.org", "10.0.0.5:80", "10.0.0.0/33"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
