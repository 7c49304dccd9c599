//! The name of an image: registry, repository, tag and digest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

const DOCKER_HUB: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
/// The longest registry and repository together, as other tools have it.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// A complete reference. Docker Hub's short names are expanded: `python` is `docker.io/library/python:latest`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an image reference: {why}")]
pub struct BadReference {
    text: String,
    why: String,
}

impl Reference {
    /// The registry's host and port as the user writes them, `docker.io` for Docker Hub.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Has no effect if there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same image, pinned to this manifest.
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// Registry and repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

impl FromStr for Reference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Self, BadReference> {
        parse(text).map_err(|why| BadReference { text: shortened(text), why: shortened(&why) })
    }
}

fn parse(text: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("it is empty; write for example `python:3.12-slim`".to_owned());
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!("leave out `{}://`", shortened(scheme)));
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.parse::<Digest>().map_err(|error| error.to_string())?)),
        None => (text, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, repository) = split_name(name)?;
    if registry.len() + 1 + repository.len() > LONGEST_NAME {
        return Err(format!("the name is longer than {LONGEST_NAME} bytes"));
    }
    check_repository(&repository)?;
    let tag = match (tag, &digest) {
        (None, None) => Some(DEFAULT_TAG),
        (tag, _) => tag,
    };
    Ok(Reference { registry, repository, tag: tag.map(str::to_owned), digest })
}

/// The first component is a registry if it cannot be part of a Docker Hub name.
fn split_name(name: &str) -> Result<(String, String), String> {
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => (DOCKER_HUB, name),
    };
    check_registry(registry)?;
    let registry = registry.to_ascii_lowercase();
    let is_hub = matches!(registry.as_str(), DOCKER_HUB | "index.docker.io" | "registry-1.docker.io");
    match is_hub {
        true if repository.contains('/') => Ok((DOCKER_HUB.to_owned(), repository.to_owned())),
        true => Ok((DOCKER_HUB.to_owned(), format!("library/{repository}"))),
        false => Ok((registry, repository.to_owned())),
    }
}

/// Checks `host` or `host:port`. The host is a name, an IPv4 address, or an IPv6 address in brackets.
pub(crate) fn check_registry(registry: &str) -> Result<(), String> {
    let bad = || format!("`{registry}` is not a registry: give `host` or `host:port`");
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    };
    if let Some(port) = port {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || port.parse::<u16>().is_ok_and(|port| port == 0) || port.parse::<u16>().is_err() {
            return Err(bad());
        }
    }
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_good = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    if is_good { Ok(()) } else { Err(bad()) }
}

pub(crate) fn check_repository(repository: &str) -> Result<(), String> {
    if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("the repository `{repository}` must be lowercase"));
    }
    match repository.split('/').find(|component| !is_component(component)) {
        None => Ok(()),
        Some("") => Err("a part of the repository's name is empty".to_owned()),
        Some(bad) => Err(format!(
            "`{bad}` is not allowed in a repository's name; use lowercase letters, digits, and single `.`, `_`, `__` or `-` between them"
        )),
    }
}

/// Runs of letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends_plain = |byte: Option<&u8>| byte.is_some_and(|byte| is_plain(*byte));
    if !ends_plain(bytes.first()) || !ends_plain(bytes.last()) {
        return false;
    }
    let separators = bytes.split(|byte| is_plain(*byte)).filter(|separator| !separator.is_empty());
    separators.into_iter().all(|separator| match separator {
        b"." | b"_" | b"__" => true,
        dashes => dashes.iter().all(|byte| *byte == b'-'),
    })
}

fn check_tag(tag: &str) -> Result<(), String> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_later = |byte: u8| is_first(byte) || byte == b'.' || byte == b'-';
    let first = tag.bytes().next();
    if tag.len() <= LONGEST_TAG && first.is_some_and(is_first) && tag.bytes().all(is_later) {
        return Ok(());
    }
    Err(format!("`{tag}` is not a tag: use up to {LONGEST_TAG} letters, digits, `_`, `.` and `-`"))
}

/// What is shown of bad input: no control characters, and not all of a long text.
fn shortened(text: &str) -> String {
    text.chars().take(300).map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(formatter, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Reference {
    type Error = BadReference;

    fn try_from(text: String) -> Result<Self, BadReference> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn short_names_expand_to_docker_hub_and_full_names_stay() {
        for (text, full) in [
            ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
            ("alpine", "docker.io/library/alpine:latest"),
            ("bitnami/redis:7", "docker.io/bitnami/redis:7"),
            ("docker.io/alpine", "docker.io/library/alpine:latest"),
            ("index.docker.io/library/alpine:3", "docker.io/library/alpine:3"),
            ("localhost/x", "localhost/x:latest"),
            ("localhost:5000/x", "localhost:5000/x:latest"),
            ("localhost:5000/a/b-c/d__e.f:V1_x", "localhost:5000/a/b-c/d__e.f:V1_x"),
            ("GHCR.io/org/tool:1", "ghcr.io/org/tool:1"),
            ("[::1]:5000/x:1", "[::1]:5000/x:1"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"),
        ] {
            let reference: Reference = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(reference.to_string(), full);
            assert_eq!(full.parse::<Reference>().unwrap(), reference);
        }
    }

    #[test]
    fn a_digest_pins_and_keeps_the_tag_for_the_reader() {
        let pinned: Reference = format!("python@sha256:{HEX}").parse().unwrap();
        assert_eq!((pinned.tag(), pinned.digest().unwrap().hex()), (None, HEX));
        let both: Reference = format!("quay.io/a/b:1@sha256:{HEX}").parse().unwrap();
        assert_eq!((both.registry(), both.repository(), both.tag()), ("quay.io", "a/b", Some("1")));
        assert_eq!(both.to_string(), format!("quay.io/a/b:1@sha256:{HEX}"));
    }

    #[test]
    fn bad_references_are_refused_with_the_reason() {
        let long = "a".repeat(256);
        for (text, why) in [
            ("", "empty"),
            ("https://docker.io/python", "leave out `https://`"),
            ("docker://python", "leave out `docker://`"),
            ("Python:3", "lowercase"),
            ("a//b", "empty"),
            ("a/", "empty"),
            ("../etc/passwd", "`..` is not a registry"),
            ("x/../y", "`..` is not allowed"),
            ("a..b/c/d", "not a registry"),
            ("a___b", "not allowed"),
            ("-a", "not allowed"),
            ("a b", "not allowed"),
            ("a:", "is not a tag"),
            ("a:b c", "is not a tag"),
            ("a:.b", "is not a tag"),
            ("a@sha256:12", "is not a digest"),
            ("a@md5:12", "is not a digest"),
            ("localhost:99999/x", "is not a registry"),
            ("localhost:/x", "is not a registry"),
            ("me:pw@host.com/x", "is not a digest"),
            ("exa_mple.com/x", "is not a registry"),
            ("[::1/x:1", "not a registry"),
            ("a\r\nb", "not allowed"),
            (&long, "longer than 255"),
        ] {
            let error = text.parse::<Reference>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
