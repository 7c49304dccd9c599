//! Why something was refused: a stable code for programs, a sentence for people.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::range::Range;

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code", content = "range")]
pub enum Refusal {
    #[error("the policy denies all network")]
    PolicyDenies,
    #[error("it is not on the allow list")]
    NotListed,
    #[error("the allow list has it on other ports only")]
    PortNotListed,
    #[error("it is on the deny list")]
    Denied,
    #[error("the workspace's policy does not allow it")]
    WorkspacePolicy,
    #[error("it is {0}")]
    Range(Range),
    #[error("the name resolves to {0}")]
    Rebinding(Range),
    #[error("the gateway is the only DNS server")]
    OtherDnsServer,
    #[error("it is a public DNS resolver")]
    PublicResolver,
    #[error("this type of DNS record is not answered")]
    RecordType,
    #[error("the DNS name or one of its labels is too long")]
    DnsNameLength,
    #[error("too many DNS queries")]
    DnsRate,
    #[error("the DNS message cannot be read")]
    DnsMalformed,
    #[error("the connection shows no name, and its address is allowed by name only")]
    NameMissing,
    #[error("the name shown is not one this address was resolved for")]
    NameNotPinned,
    #[error("the request's host is not the name the connection was opened for")]
    HostDiffers,
    #[error("the TLS server name is encrypted")]
    EncryptedName,
    #[error("the TLS greeting cannot be read")]
    TlsMalformed,
    #[error("the HTTP request cannot be read without doubt")]
    HttpMalformed,
    #[error("a request to be relayed elsewhere")]
    Relay,
    #[error("another protocol on a port that is open for HTTP and TLS only")]
    OtherProtocol,
    #[error("the protocol was not shown in time")]
    SilentTooLong,
    #[error("too many connections")]
    Connections,
    #[error("too many new connections at once")]
    ConnectionRate,
    #[error("the limit of bytes out is reached")]
    BytesOut,
    #[error("the gateway itself takes DNS and DHCP only")]
    Udp,
    #[error("QUIC shows no name, so TCP has to be used instead")]
    Quic,
    #[error("ICMP goes to the gateway only")]
    Icmp,
    #[error("this IP protocol is not carried")]
    IpProtocol,
    #[error("IPv6 is not carried")]
    Ipv6,
    #[error("fragments are not carried")]
    Fragment,
    #[error("the sender's address is not the sandbox's own")]
    Spoofed,
    #[error("the frame cannot be read")]
    FrameMalformed,
    #[error("the frame is longer than the network takes")]
    FrameOversized,
    #[error("the secret is not bound to this host")]
    SecretElsewhere,
    #[error("a secret is placed only in headers and queries of HTTPS requests")]
    SecretMisplaced,
    #[error("TLS must be opened to it, and the sandbox has no authority to do so with")]
    NoAuthority,
    #[error("the answer to a request with a secret is encoded, so that the secret could not be taken out of it")]
    AnswerEncoded,
    #[error("the policy changed")]
    PolicyChanged,
    #[error("the secret was changed or revoked")]
    SecretRevoked,
}
