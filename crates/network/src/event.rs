//! A decision of the gateway, as it is reported.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::name::HostName;
use crate::policy::Refusal;

/// A decision of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    pub kind: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<HostName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// True for datagrams, false for a connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub udp: bool,
    pub verdict: Verdict,
    /// Bytes from the guest and to it. Known when a connection closes.
    #[serde(default)]
    pub bytes_out: u64,
    #[serde(default)]
    pub bytes_in: u64,
    /// Names of the secrets that the gateway inserted into a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What happened in this case and how to allow it, if the verdict alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What the decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A DNS query.
    Dns,
    /// A new connection, or the first datagram of an exchange.
    Connect,
    /// A connection or a first datagram from a peer in the group.
    Accept,
    /// The name that a connection showed, or its absence.
    Name,
    /// An HTTP request.
    Request,
    /// The end of a connection or of an exchange of datagrams.
    Close,
    /// A packet that is neither TCP nor UDP, or a frame that the gateway cannot accept.
    Packet,
}

/// What the gateway decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allowed,
    Refused(Refusal),
    Failed(Failure),
}

/// Why an allowed connection or query failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    NoSuchName,
    NoAnswer,
    Unreachable,
    ConnectionRefused,
    TimedOut,
    Reset,
    /// The server's certificate is not valid, or the TLS handshake with it failed.
    ServerTls,
    /// The guest does not trust the sandbox's certificate authority, or does not offer HTTP/1.1.
    GuestTls,
    Idle,
}

impl Event {
    /// An event with the current time and this verdict.
    pub fn new(kind: EventKind, verdict: Verdict) -> Event {
        Event {
            at: Timestamp::now(),
            kind,
            name: None,
            address: None,
            port: None,
            udp: false,
            verdict,
            bytes_out: 0,
            bytes_in: 0,
            secrets: Vec::new(),
            detail: None,
        }
    }

    /// Sets the name.
    pub fn of_name(mut self, name: Option<HostName>) -> Event {
        self.name = name;
        self
    }

    /// Sets the address and the port.
    pub fn at_address(mut self, address: impl Into<IpAddr>, port: Option<u16>) -> Event {
        self.address = Some(address.into());
        self.port = port;
        self
    }

    /// Marks the event as one about datagrams.
    pub fn of_datagrams(mut self) -> Event {
        self.udp = true;
        self
    }
}
