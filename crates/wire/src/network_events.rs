//! Decisions of gateways.

use serde::Serialize;
use utoipa::ToSchema;

/// One decision of a sandbox's gateway.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkEventView {
    /// Increases with every event.
    pub number: u64,
    pub time: String,
    /// `dns`, `connect`, `accept`, `name`, `request`, `close` or `packet`.
    pub kind: EventName,
    pub name: Option<String>,
    pub address: Option<String>,
    pub port: Option<u16>,
    /// Whether it is about UDP rather than a TCP connection.
    pub udp: bool,
    pub verdict: VerdictName,
    /// The reason of a refusal or failure, for people.
    pub reason: Option<String>,
    /// The same reason as a code for programs.
    pub code: Option<String>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Names of the secrets that the gateway inserted into a request.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    Dns,
    Connect,
    Accept,
    Name,
    Request,
    Close,
    Packet,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    Allowed,
    Refused,
    Failed,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkEventList {
    pub events: Vec<NetworkEventView>,
}
