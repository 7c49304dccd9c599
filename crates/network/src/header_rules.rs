//! Headers that the gateway sets in requests to some hosts. The guest sees neither the rules nor the values.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::HostName;
use crate::policy::{BadEntry, Entry, Target};

const MOST_HOSTS: usize = 64;
const MOST_HEADERS: usize = 32;
const LONGEST_VALUE: usize = 8192;
/// Headers by which a request is delimited, forwarded or judged.
const NEVER_SET: [&str; 9] =
    ["connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Headers by host, as they are written down.
pub type HeadersByHost = BTreeMap<String, BTreeMap<String, String>>;

/// The headers of all hosts that have any.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "HeadersByHost", into = "HeadersByHost")]
pub struct HeaderRules(Vec<HeaderRule>);

#[derive(Clone, PartialEq, Eq)]
struct HeaderRule {
    host: Entry,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why rules are not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadHeaderRule {
    #[error(transparent)]
    Host(#[from] BadEntry),
    #[error("{0:?} is a preset; a header rule is for a host name, an address or a network")]
    Preset(String),
    #[error("{0:?} is not the name of a header that a rule can set")]
    Name(String),
    #[error("the value of the header {0} has more than {LONGEST_VALUE} bytes or a character that headers cannot have")]
    Value(String),
    #[error("at most {MOST_HOSTS} hosts can have header rules, and each at most {MOST_HEADERS} headers")]
    TooMany,
}

impl HeaderRules {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the gateway must change requests to this server.
    pub(crate) fn apply_to(&self, name: Option<&HostName>, address: Ipv4Addr, port: u16) -> bool {
        self.of(name, address, port).next().is_some()
    }

    /// Sets the headers of a request to this server, in place of those that the guest set.
    pub(crate) fn set(&self, name: Option<&HostName>, address: Ipv4Addr, port: u16, headers: &mut HeaderMap) {
        for (header, value) in self.of(name, address, port).flat_map(|rule| &rule.headers) {
            headers.insert(header, value.clone());
        }
    }

    fn of(&self, name: Option<&HostName>, address: Ipv4Addr, port: u16) -> impl Iterator<Item = &HeaderRule> {
        self.0.iter().filter(move |rule| {
            name.is_some_and(|name| rule.host.covers_port_of_name(name, port))
                || rule.host.covers_address(address, port)
        })
    }
}

impl TryFrom<HeadersByHost> for HeaderRules {
    type Error = BadHeaderRule;

    fn try_from(rules: HeadersByHost) -> Result<Self, BadHeaderRule> {
        if rules.len() > MOST_HOSTS || rules.values().any(|headers| headers.len() > MOST_HEADERS) {
            return Err(BadHeaderRule::TooMany);
        }
        let rules = rules.into_iter().filter(|(_, headers)| !headers.is_empty());
        Ok(Self(rules.map(|(host, headers)| HeaderRule::new(host, headers)).collect::<Result<_, _>>()?))
    }
}

impl From<HeaderRules> for HeadersByHost {
    fn from(rules: HeaderRules) -> Self {
        let pair = |(name, value): &(HeaderName, HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        rules.0.iter().map(|rule| (rule.host.to_string(), rule.headers.iter().map(pair).collect())).collect()
    }
}

impl HeaderRule {
    fn new(host: String, headers: BTreeMap<String, String>) -> Result<Self, BadHeaderRule> {
        let entry: Entry = host.parse()?;
        if matches!(entry.target, Target::Preset(_)) {
            return Err(BadHeaderRule::Preset(host));
        }
        let headers = headers.into_iter().map(|(name, value)| header(&name, &value));
        Ok(Self { host: entry, headers: headers.collect::<Result<_, _>>()? })
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), BadHeaderRule> {
    let parsed = HeaderName::try_from(name).ok();
    let allowed = |name: &HeaderName| !NEVER_SET.contains(&name.as_str()) && !name.as_str().starts_with("proxy-");
    let parsed = parsed.filter(allowed).ok_or_else(|| BadHeaderRule::Name(name.to_owned()))?;
    let mut value = HeaderValue::from_str(value)
        .ok()
        .filter(|_| value.len() <= LONGEST_VALUE)
        .ok_or_else(|| BadHeaderRule::Value(name.to_owned()))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// Without the values, which may be credentials.
impl fmt::Debug for HeaderRules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.iter().map(|rule| rule.host.to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &[(&str, &str)])]) -> Result<HeaderRules, BadHeaderRule> {
        let headers = |headers: &[(&str, &str)]| headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        rules.iter().map(|(host, all)| (host.to_string(), headers(all))).collect::<HeadersByHost>().try_into()
    }

    fn sent_to(rules: &HeaderRules, name: Option<&str>, address: [u8; 4], port: u16) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-key", HeaderValue::from_static("the guest's"));
        let name: Option<HostName> = name.map(|name| name.parse().unwrap());
        rules.set(name.as_ref(), address.into(), port, &mut headers);
        headers
    }

    #[test]
    fn a_header_goes_to_its_host_and_no_other() {
        let rules =
            rules(&[("api.example.com", &[("X-Key", "1"), ("X-More", "2")]), ("*.b.com:8443", &[("X-B", "3")])]);
        let rules = rules.unwrap();
        let api = sent_to(&rules, Some("api.example.com"), [1, 1, 1, 2], 443);
        assert_eq!((&api["x-key"], &api["x-more"], api.len()), (&"1".parse().unwrap(), &"2".parse().unwrap(), 2));
        assert_eq!(sent_to(&rules, Some("a.b.com"), [1, 1, 1, 2], 8443)["x-b"], "3");
        for (name, port) in [("example.com", 443), ("api.example.com", 8080), ("b.com", 8443), ("a.b.com", 443)] {
            assert_eq!(sent_to(&rules, Some(name), [1, 1, 1, 2], port)["x-key"], "the guest's", "{name}:{port}");
            assert!(!rules.apply_to(Some(&name.parse().unwrap()), [1, 1, 1, 2].into(), port), "{name}:{port}");
        }
    }

    #[test]
    fn a_header_goes_to_addresses() {
        let rules = rules(&[("93.184.216.0/24", &[("X-Key", "1")])]).unwrap();
        assert_eq!(sent_to(&rules, None, [93, 184, 216, 34], 80)["x-key"], "1");
        assert_eq!(sent_to(&rules, None, [93, 184, 217, 34], 80)["x-key"], "the guest's");
    }

    #[test]
    fn what_would_change_more_than_a_header_is_refused() {
        for name in ["Host", "Content-Length", "transfer-encoding", "Proxy-Authorization", "a b", ""] {
            assert_eq!(rules(&[("a.com", &[(name, "x")])]), Err(BadHeaderRule::Name(name.to_owned())));
        }
        for value in ["a\r\nHost: evil.com", "a\0", &"x".repeat(LONGEST_VALUE + 1)] {
            assert_eq!(rules(&[("a.com", &[("x", value)])]), Err(BadHeaderRule::Value("x".to_owned())));
        }
        assert!(matches!(rules(&[("pypi", &[("x", "1")])]), Err(BadHeaderRule::Preset(_))));
        assert!(matches!(rules(&[("https://a.com", &[("x", "1")])]), Err(BadHeaderRule::Host(_))));
    }

    #[test]
    fn rules_are_read_as_they_were_written_and_not_printed() {
        let written = rules(&[("a.com", &[("x-key", "hunter2")])]).unwrap();
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<HeaderRules>(&text).unwrap(), written);
        assert!(!format!("{written:?}").contains("hunter2"));
        assert!(rules(&[("a.com", &[])]).unwrap().is_empty());
    }
}
