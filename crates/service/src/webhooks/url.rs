//! Addresses of receivers.

use std::fmt;
use std::str::FromStr;

const LONGEST: usize = 2048;

/// `http://` or `https://`, a host, a port and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    pub is_https: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// The path and the query.
    pub path: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a URL that events can be sent to: use https://host/path, without a user, password or fragment")]
pub struct BadUrl(pub String);

impl FromStr for WebhookUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        parse(text).ok_or_else(|| BadUrl(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<WebhookUrl> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !br#""<>\^`{|}#"#.contains(&byte));
    if !is_plain || text.len() > LONGEST {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    let is_https = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let default_port = if is_https { 443 } else { 80 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port != 0))?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_host)).then(|| WebhookUrl {
        is_https,
        host: host.to_ascii_lowercase(),
        port,
        path,
    })
}

impl WebhookUrl {
    /// The value of a `Host` header: without the port if it is the scheme's own.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.is_https, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}{}", if self.is_https { "s" } else { "" }, self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_in_their_parts() {
        for (text, again) in [
            ("https://Example.com", "https://example.com/"),
            ("https://example.com:443/a?b=c", "https://example.com/a?b=c"),
            ("http://127.0.0.1:9000?x", "http://127.0.0.1:9000/?x"),
            ("http://[::1]:80/x", "http://[::1]/x"),
            ("https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"),
        ] {
            assert_eq!(text.parse::<WebhookUrl>().unwrap().to_string(), again);
        }
    }

    #[test]
    fn what_could_mislead_is_refused() {
        for text in [
            "",
            "example.com",
            "ftp://example.com",
            "https://",
            "https:///x",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://example.com/#part",
            "https://exa mple.com/",
            "https://example.com:0/",
            "https://example.com:x/",
            "https://[::1/",
            "https://[example.com]/",
            "https://example.com/\r\nhost: evil",
            "https://ex\u{e4}mple.com/",
        ] {
            assert!(text.parse::<WebhookUrl>().is_err(), "{text}");
        }
    }
}
