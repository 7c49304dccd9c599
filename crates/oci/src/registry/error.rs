//! Why an image cannot be pulled. Each message is one sentence that says what to do next.

use std::net::IpAddr;
use std::time::Duration;

use crate::digest::Digest;

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("the certificates for registries cannot be read: {0}")]
    Certificates(String),
    #[error("`{mirror}` is not a mirror: {why}")]
    BadMirror { mirror: String, why: String },
    #[error("cannot reach {host}: {why}; check the name and this server's network")]
    Unreachable { host: String, why: String },
    #[error("{host} did not answer within {} s; try again later", .after.as_secs_f32())]
    TimedOut { host: String, after: Duration },
    #[error("{host} sends too slowly: {received} of {size} bytes in {} s; try again later or use a mirror", .after.as_secs())]
    TooSlow { host: String, received: u64, size: u64, after: Duration },
    #[error("the connection to {host} broke: {why}; try again")]
    Broken { host: String, why: String },
    #[error("{host} does not answer with TLS: {why}; check the name and the port")]
    NotTls { host: String, why: String },
    #[error("the certificate of {host} is not trusted: {why}; give its CA certificate to the server's operator")]
    Untrusted { host: String, why: String },
    #[error("{host} is at {address}, where images may not be pulled from; ask the operator to allow this registry")]
    AddressRefused { host: String, address: IpAddr },
    #[error("the registry refers to {host} at {address}, an address that it may not use; pull from another registry")]
    ReferralRefused { host: String, address: IpAddr },
    #[error(
        "{host} would be asked over http://, which only registries on loopback may use; ask the operator to allow it"
    )]
    Plaintext { host: String },
    #[error("{host} redirects from https:// to {to}, which is not safe; pull from another registry")]
    Downgrade { host: String, to: String },
    #[error("{host} redirects more than {limit} times; pull from another registry")]
    TooManyRedirects { host: String, limit: usize },
    #[error("{host} redirects to `{to}`, which is not an address; pull from another registry")]
    BadRedirect { host: String, to: String },
    #[error("the registry asks for credentials for {name}, or it does not exist: check the name, or run `sandling registry login {registry}`{}", note(.unusable))]
    CredentialsNeeded { registry: String, name: String, unusable: Option<String> },
    #[error("{registry} refuses the stored credentials for {name}: run `sandling registry login {registry}` again")]
    CredentialsRefused { registry: String, name: String },
    #[error("{registry} denies access to {name}: use an account that may pull it, with `sandling registry login {registry}`{}", note(.unusable))]
    Denied { registry: String, name: String, unusable: Option<String> },
    #[error("{registry} asks for authentication of an unknown kind (`{challenge}`); Sandling knows Basic and Bearer")]
    UnknownChallenge { registry: String, challenge: String },
    #[error("the token server {host} sent no token: {why}; try again later")]
    NoToken { host: String, why: String },
    #[error("{registry} has no image {reference}; check the name and the tag")]
    NoSuchImage { registry: String, reference: String },
    #[error("{registry} lacks {digest} of {name}; push the image again")]
    NoSuchBlob { registry: String, name: String, digest: Digest },
    #[error("{host} limits the rate of pulls; try again {}, or log in with `sandling registry login`", later(.retry_after))]
    RateLimited { host: String, retry_after: Option<Duration> },
    #[error("{host} answered {status}{}; try again later", said(.message))]
    ServerError { host: String, status: u16, message: String },
    #[error("{host} answered {status}{}, which a registry does not do; check that it is one", said(.message))]
    Strange { host: String, status: u16, message: String },
    #[error("{host} sends more than {limit} bytes for {what}; pull another image")]
    TooLarge { host: String, what: String, limit: u64 },
    #[error(
        "{host} sent {received} bytes for {what} instead of {expected}; push the image again or use another registry"
    )]
    WrongSize { host: String, what: String, received: u64, expected: u64 },
    #[error("{host} sent content with the digest {found} for {expected}; push the image again or use another registry")]
    WrongDigest { host: String, expected: Digest, found: Digest },
    #[error("{reference} is not a usable image: {why}")]
    BadImage { reference: String, why: String },
    #[error("{reference} is not made for {wanted}; there is {}", list(.found))]
    NoSuchPlatform { reference: String, wanted: String, found: Vec<String> },
    #[error("the download of {digest} cannot be written to a file: {error}")]
    Write { digest: Digest, error: std::io::Error },
}

fn note(unusable: &Option<String>) -> String {
    unusable.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

fn later(retry_after: &Option<Duration>) -> String {
    match retry_after.map(|after| after.as_secs()) {
        None => "later".to_owned(),
        Some(seconds @ ..=120) => format!("in {} s", seconds.max(1)),
        Some(seconds) => format!("in {} min", seconds.div_ceil(60)),
    }
}

fn list(found: &[String]) -> String {
    if found.is_empty() { "no platform".to_owned() } else { found.join(", ") }
}

impl RegistryError {
    /// Whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::Broken { .. }
                | Self::RateLimited { .. }
                | Self::ServerError { .. }
        )
    }
}
