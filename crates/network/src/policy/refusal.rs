//! Why the gateway refuses something: a stable code for programs, and a sentence for people.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::range::Range;

/// Why the gateway refuses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code", content = "range")]
pub enum Refusal {
    #[error("the policy denies all network access")]
    PolicyDenies,
    #[error("it is not on the allow list")]
    NotListed,
    #[error("the allow list has it with other ports only")]
    PortNotListed,
    #[error("it is on the deny list")]
    Denied,
    #[error("the workspace's policy does not allow it")]
    WorkspacePolicy,
    #[error("it is {0}")]
    Range(Range),
    #[error("the name resolves to {0}")]
    Rebinding(Range),
    #[error("the gateway is the only DNS server that the sandbox may use")]
    OtherDnsServer,
    #[error("it is a public DNS resolver")]
    PublicResolver,
    #[error("the gateway does not answer this type of DNS record")]
    RecordType,
    #[error("the DNS name or one of its labels is too long")]
    DnsNameLength,
    #[error("the sandbox sends too many DNS queries")]
    DnsRate,
    #[error("the DNS message is malformed")]
    DnsMalformed,
    #[error("the connection shows no name, and its address is allowed by name only")]
    NameMissing,
    #[error("DNS did not return this address for the name that the connection shows")]
    NameNotPinned,
    #[error("the request's host differs from the name of the connection")]
    HostDiffers,
    #[error("the TLS server name is encrypted")]
    EncryptedName,
    #[error("the TLS client hello is malformed")]
    TlsMalformed,
    #[error("the HTTP request is malformed or ambiguous")]
    HttpMalformed,
    #[error("the request asks the server to act as a proxy")]
    Relay,
    #[error("the connection uses another protocol on a port that is allowed for HTTP and TLS only")]
    OtherProtocol,
    #[error("the connection did not show its protocol in time")]
    SilentTooLong,
    #[error("the sandbox has too many connections")]
    Connections,
    #[error("the sandbox opens connections too fast")]
    ConnectionRate,
    #[error("the sandbox has sent as many bytes as it may")]
    BytesOut,
    #[error("the gateway itself accepts DNS and DHCP only")]
    Udp,
    #[error("QUIC shows no name; use TCP instead")]
    Quic,
    #[error("ICMP is allowed to the gateway only")]
    Icmp,
    #[error("the gateway does not support this IP protocol")]
    IpProtocol,
    #[error("the gateway does not support IPv6")]
    Ipv6,
    #[error("the gateway does not support fragments")]
    Fragment,
    #[error("the sender's address is not the sandbox's own")]
    Spoofed,
    #[error("the frame is malformed")]
    FrameMalformed,
    #[error("the frame exceeds the MTU")]
    FrameOversized,
    #[error("the secret is not for this host")]
    SecretElsewhere,
    #[error(
        "the placeholder of a secret is where the gateway inserts no secret; it does so only in HTTPS requests, at the \
         placements of the secret, and never in a path, a header's name, a body or a WebSocket message"
    )]
    SecretMisplaced,
    #[error("TLS must be intercepted, and the sandbox has no certificate authority for that")]
    NoAuthority,
    #[error(
        "the response to a request with a secret is encoded or partial, so the gateway could not remove the secret from it"
    )]
    AnswerEncoded,
    #[error("the policy changed")]
    PolicyChanged,
    #[error("the secret was changed or revoked")]
    SecretRevoked,
}
