//! Sends a registry's requests, with the authorization that it asks for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use tokio::sync::Semaphore;

use super::auth::Authorization;
use super::connect::{Connector, Scheme};
use super::error::RegistryError;
use super::exchange::{self, Outgoing, Reply, Url};
use super::options::{Endpoint, RegistryOptions, Role};
use super::retry::retry_after;
use crate::digest::Digest;
use crate::reference::{Reference, check_registry, check_repository};

/// How many blobs are downloaded at once.
const DOWNLOADS: usize = 3;
/// Docker Hub's API is not at the host that names it.
const DOCKER_HUB_API: &str = "registry-1.docker.io";

/// Pulls images with one tenant's credentials.
pub struct Client {
    pub(super) options: RegistryOptions,
    pub(super) connector: Connector,
    pub(super) downloads: Semaphore,
    schemes: Mutex<HashMap<String, Scheme>>,
    authorizations: Mutex<HashMap<Source, Authorization>>,
}

/// A repository in a registry or in a mirror of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Source {
    /// What messages show and what credentials are stored under.
    pub registry: String,
    pub repository: String,
}

/// What a request is for, which decides about the text of an error.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    Manifest(&'a Reference),
    Blob(&'a Digest),
    /// Whether the registry knows the user.
    Login,
}

impl Client {
    pub fn new(options: RegistryOptions) -> Result<Self, RegistryError> {
        for mirror in options.mirrors.values().flatten() {
            let (host, prefix) = split_mirror(mirror);
            check_registry(host)
                .and_then(|()| prefix.map_or(Ok(()), check_repository))
                .map_err(|why| RegistryError::BadMirror { mirror: mirror.clone(), why })?;
        }
        Ok(Self {
            connector: Connector::new(&options)?,
            options,
            downloads: Semaphore::new(DOWNLOADS),
            schemes: Mutex::default(),
            authorizations: Mutex::default(),
        })
    }

    /// Asks a registry whether it accepts the credentials for it.
    pub async fn check_credentials(&self, registry: &str) -> Result<(), RegistryError> {
        let source = Source { registry: registry.to_owned(), repository: String::new() };
        self.request(&source, Method::GET, Wanted::Login, &[]).await.map(drop)
    }

    /// Where the image can be: the mirrors in their order, then the registry itself.
    pub(super) fn sources(&self, reference: &Reference) -> Vec<Source> {
        let mirrors = self.options.mirrors.get(reference.registry()).into_iter().flatten();
        let mirrors = mirrors.map(|mirror| match split_mirror(mirror) {
            (host, None) => (host.to_owned(), reference.repository().to_owned()),
            (host, Some(prefix)) => (host.to_owned(), format!("{prefix}/{}", reference.repository())),
        });
        let origin = (reference.registry().to_owned(), reference.repository().to_owned());
        mirrors.chain([origin]).map(|(registry, repository)| Source { registry, repository }).collect()
    }

    /// Sends one request and returns a successful answer. Retries only for the sake of authorization.
    pub(super) async fn request(
        &self,
        source: &Source,
        method: Method,
        wanted: Wanted<'_>,
        headers: &[(HeaderName, String)],
    ) -> Result<Reply, RegistryError> {
        let path = match wanted {
            Wanted::Manifest(reference) => {
                let digest = reference.digest().map(Digest::as_str);
                let version = digest.or(reference.tag()).expect("a reference has a tag or a digest");
                format!("/v2/{}/manifests/{version}", source.repository)
            }
            Wanted::Blob(digest) => format!("/v2/{}/blobs/{digest}", source.repository),
            Wanted::Login => "/v2/".to_owned(),
        };
        let scheme = self.scheme(source).await?;
        let mut outgoing = Outgoing {
            method,
            url: Url { scheme, endpoint: source.endpoint(scheme), path },
            headers: headers.to_vec(),
            authorization: self.known_authorization(source),
            body: Bytes::new(),
        };
        let mut reply = exchange::send(&self.connector, &self.options.timeouts, &outgoing, None).await?;
        if reply.status.as_u16() == 401 && !reply.sender.is_other_host {
            let Some(authorization) = self.authorize(source, &reply.headers, reply.sender.registry).await? else {
                return Err(self.credentials_needed(source));
            };
            outgoing.authorization = Some(authorization.header.clone());
            lock(&self.authorizations).insert(source.clone(), authorization);
            reply = exchange::send(&self.connector, &self.options.timeouts, &outgoing, None).await?;
        }
        if reply.status.is_success() {
            return Ok(reply);
        }
        Err(self.refusal(source, wanted, reply).await)
    }

    fn known_authorization(&self, source: &Source) -> Option<HeaderValue> {
        let known = lock(&self.authorizations);
        known.get(source).filter(|authorization| authorization.is_valid()).map(|known| known.header.clone())
    }

    async fn refusal(&self, source: &Source, wanted: Wanted<'_>, reply: Reply) -> RegistryError {
        let (host, status) = (reply.sender.host.clone(), reply.status.as_u16());
        let registry = source.registry.clone();
        match (status, wanted) {
            // Storage behind the registry refuses a link that is no longer valid. A new request gets a new link.
            (401 | 403, _) if reply.sender.is_other_host => {
                RegistryError::ServerError { host, status, message: reply.message(&self.options.timeouts).await }
            }
            (401, _) => match (self.options.credentials)(&source.registry) {
                Ok(Some(_)) => source.credentials_refused(),
                _ => self.credentials_needed(source),
            },
            (403, _) => RegistryError::Denied { registry, name: source.name(), unusable: self.unusable(source) },
            (404, Wanted::Manifest(reference)) => {
                RegistryError::NoSuchImage { registry, reference: reference.to_string() }
            }
            (404, Wanted::Blob(digest)) => {
                RegistryError::NoSuchBlob { registry, name: source.name(), digest: digest.clone() }
            }
            (429, _) => {
                let retry_after = retry_after(&reply.headers, jiff::Timestamp::now());
                RegistryError::RateLimited { host, retry_after }
            }
            (408 | 500.., _) => {
                RegistryError::ServerError { host, status, message: reply.message(&self.options.timeouts).await }
            }
            _ => RegistryError::Strange { host, status, message: reply.message(&self.options.timeouts).await },
        }
    }

    pub(super) fn credentials_needed(&self, source: &Source) -> RegistryError {
        let (registry, name) = (source.registry.clone(), source.name());
        RegistryError::CredentialsNeeded { registry, name, unusable: self.unusable(source) }
    }

    fn unusable(&self, source: &Source) -> Option<String> {
        (self.options.credentials)(&source.registry).err()
    }

    /// `https://`, unless the registry may use `http://` and does not speak TLS.
    pub(super) async fn scheme(&self, source: &Source) -> Result<Scheme, RegistryError> {
        let endpoint = source.endpoint(Scheme::Https);
        if !self.connector.allows_plaintext(&endpoint) {
            return Ok(Scheme::Https);
        }
        if let Some(known) = lock(&self.schemes).get(&source.registry) {
            return Ok(*known);
        }
        let scheme = match self.connector.connect(&endpoint, Scheme::Https, None).await {
            Ok(_) => Scheme::Https,
            // Servers without TLS answer a handshake with text, or hang up.
            Err(RegistryError::NotTls { .. } | RegistryError::Broken { .. }) => Scheme::Http,
            Err(RegistryError::Unreachable { .. }) if endpoint.port == 443 => Scheme::Http,
            Err(error) => return Err(error),
        };
        lock(&self.schemes).insert(source.registry.clone(), scheme);
        Ok(scheme)
    }
}

impl Source {
    fn endpoint(&self, scheme: Scheme) -> Endpoint {
        let authority = if self.registry == "docker.io" { DOCKER_HUB_API } else { &self.registry };
        let default = if scheme == Scheme::Https { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(default)),
            _ => (authority, default),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Endpoint { host, port, role: Role::Registry }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    pub fn credentials_refused(&self) -> RegistryError {
        RegistryError::CredentialsRefused { registry: self.registry.clone(), name: self.name() }
    }
}

fn split_mirror(mirror: &str) -> (&str, Option<&str>) {
    match mirror.split_once('/') {
        Some((host, prefix)) => (host, Some(prefix)),
        None => (mirror, None),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
