//! From a reference to the manifest and the configuration of one platform's image.

use hyper::Method;
use hyper::header::ACCEPT;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client::{Client, Source, Wanted};
use super::error::RegistryError;
use super::exchange::printable;
use super::retry::Backoff;
use crate::digest::Digest;
use crate::reference::Reference;
use crate::spec::{Descriptor, ImageConfig, Index, Manifest, Platform};

const LARGEST_DOCUMENT: usize = 4 * 1024 * 1024;
const DEEPEST_INDEX: usize = 4;
const MOST_LAYERS: usize = 500;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
/// Registries of old wrote the last one.
const CONFIGS: [&str; 4] = [
    "",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
    "application/octet-stream",
];

/// An image for one platform. All digests and sizes are verified.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The manifest's digest. A reference with this digest names the same image forever.
    pub digest: Digest,
    pub manifest: Manifest,
    pub config: ImageConfig,
    pub manifest_bytes: Vec<u8>,
    pub config_bytes: Vec<u8>,
}

impl Client {
    /// Finds the image, first in the mirrors of its registry.
    pub async fn resolve(&self, reference: &Reference, platform: &Platform) -> Result<Resolved, RegistryError> {
        let mut sources = self.sources(reference).into_iter().peekable();
        loop {
            let source = sources.next().expect("the last source returns");
            match self.resolve_in(&source, reference, platform).await {
                Err(_) if sources.peek().is_some() => continue,
                done => return done,
            }
        }
    }

    async fn resolve_in(
        &self,
        source: &Source,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<Resolved, RegistryError> {
        let mut current = reference.clone();
        let mut expected: Option<Descriptor> = None;
        for _ in 0..DEEPEST_INDEX {
            let (digest, bytes) = self.manifest_bytes(source, &current, expected.as_ref()).await?;
            match parse_document(&bytes).map_err(|why| bad(reference, why))? {
                Document::Manifest(manifest) => {
                    return self.with_config(source, reference, platform, digest, manifest, bytes).await;
                }
                Document::Index(index) => {
                    let chosen = choose(&index, platform).map_err(|found| RegistryError::NoSuchPlatform {
                        reference: reference.to_string(),
                        wanted: shown(platform),
                        found,
                    })?;
                    current = reference.with_digest(chosen.digest.clone());
                    expected = Some(chosen);
                }
            }
        }
        Err(bad(reference, format!("its indexes are nested more than {DEEPEST_INDEX} deep")))
    }

    async fn manifest_bytes(
        &self,
        source: &Source,
        reference: &Reference,
        expected: Option<&Descriptor>,
    ) -> Result<(Digest, Vec<u8>), RegistryError> {
        let accept = [MANIFESTS, INDEXES].concat().join(", ");
        let (host, announced, bytes) = self.document(source, Wanted::Manifest(reference), &accept).await?;
        let found = Digest::of(&bytes);
        // Without a digest in the reference, the registry's own statement at least shows a damaged answer.
        if let Some(expected) = reference.digest().cloned().or(announced).filter(|expected| *expected != found) {
            return Err(RegistryError::WrongDigest { host, expected, found });
        }
        check_size(&host, expected, &bytes)?;
        Ok((found, bytes))
    }

    async fn with_config(
        &self,
        source: &Source,
        reference: &Reference,
        platform: &Platform,
        digest: Digest,
        manifest: Manifest,
        manifest_bytes: Vec<u8>,
    ) -> Result<Resolved, RegistryError> {
        if !CONFIGS.contains(&manifest.config.media_type.as_str()) {
            let kind = printable(&manifest.config.media_type, 100);
            return Err(bad(reference, format!("it is an artifact of type {kind}, not a container image")));
        }
        if manifest.layers.len() > MOST_LAYERS {
            return Err(bad(reference, format!("it has more than {MOST_LAYERS} layers")));
        }
        let expected = &manifest.config;
        if expected.size > LARGEST_DOCUMENT as u64 {
            return Err(bad(reference, format!("its configuration is larger than {LARGEST_DOCUMENT} bytes")));
        }
        let (host, _, config_bytes) = self.document(source, Wanted::Blob(&expected.digest), "*/*").await?;
        check_size(&host, Some(expected), &config_bytes)?;
        let found = Digest::of(&config_bytes);
        if found != expected.digest {
            return Err(RegistryError::WrongDigest { host, expected: expected.digest.clone(), found });
        }
        let config: ImageConfig = parse(&config_bytes, "configuration").map_err(|why| bad(reference, why))?;
        if (config.os.as_str(), config.architecture.as_str()) != (platform.os.as_str(), platform.architecture.as_str())
        {
            let found = vec![printable(&format!("{}/{}", config.os, config.architecture), 100)];
            let (reference, wanted) = (reference.to_string(), shown(platform));
            return Err(RegistryError::NoSuchPlatform { reference, wanted, found });
        }
        let (layers, diff_ids) = (manifest.layers.len(), config.rootfs.diff_ids.len());
        if layers != diff_ids {
            let why = format!("its manifest has {layers} layers, but its configuration lists {diff_ids}");
            return Err(bad(reference, why));
        }
        Ok(Resolved { digest, manifest, config, manifest_bytes, config_bytes })
    }

    /// Reads a small document: the host that sent it, the digest that the registry states, and the bytes.
    async fn document(
        &self,
        source: &Source,
        wanted: Wanted<'_>,
        accept: &str,
    ) -> Result<(String, Option<Digest>, Vec<u8>), RegistryError> {
        let headers = [(ACCEPT, accept.to_owned())];
        let timeouts = &self.options.timeouts;
        let what = match wanted {
            Wanted::Manifest(_) => "a manifest",
            Wanted::Blob(_) => "a configuration",
            Wanted::Login => "an answer",
        };
        let mut backoff = Backoff::new(timeouts);
        loop {
            let attempt = async {
                let reply = self.request(source, Method::GET, wanted, &headers).await?;
                let host = reply.sender.host.clone();
                let announced = reply.header("docker-content-digest").and_then(|digest| digest.parse().ok());
                Ok((host, announced, reply.document(what, LARGEST_DOCUMENT, timeouts).await?))
            };
            match attempt.await {
                Ok(document) => return Ok(document),
                Err(error) => backoff.pause(error).await?,
            };
        }
    }
}

enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// A document that could be read as both kinds is refused, because tools would disagree about its content.
fn parse_document(bytes: &[u8]) -> Result<Document, String> {
    let value: Value = parse(bytes, "manifest")?;
    if value["schemaVersion"] == 1 {
        return Err("its manifest has the obsolete schema version 1; push it again with a current tool".to_owned());
    }
    let media_type = value["mediaType"].as_str().unwrap_or_default();
    let has = |field: &str| value.get(field).is_some_and(|field| !field.is_null());
    match (has("manifests"), has("layers") || has("config")) {
        (true, true) => Err("its manifest is also an index".to_owned()),
        (true, false) if media_type.is_empty() || INDEXES.contains(&media_type) => {
            Ok(Document::Index(parse(bytes, "index")?))
        }
        (false, true) if media_type.is_empty() || MANIFESTS.contains(&media_type) => {
            Ok(Document::Manifest(parse(bytes, "manifest")?))
        }
        _ => Err(format!("its manifest is of the unknown type `{}`", printable(media_type, 100))),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, String> {
    serde_json::from_slice(bytes)
        .map_err(|error| format!("its {what} cannot be read: {}", printable(&error.to_string(), 200)))
}

/// The entry for the platform, or the platforms that there are. Without such an entry, one without a platform is tried.
fn choose(index: &Index, wanted: &Platform) -> Result<Descriptor, Vec<String>> {
    let fits = |entry: &&Descriptor| {
        entry.platform.as_ref().is_some_and(|found| found.os == wanted.os && found.architecture == wanted.architecture)
    };
    // The lowest variant runs on every machine.
    let variant = |entry: &&Descriptor| entry.platform.as_ref().and_then(|platform| platform.variant.clone());
    let of_platform = index.manifests.iter().filter(fits).min_by_key(variant);
    let unnamed = || index.manifests.iter().find(|entry| entry.platform.is_none());
    match of_platform.or_else(unnamed) {
        Some(entry) => Ok(entry.clone()),
        None => {
            let platforms = index.manifests.iter().filter_map(|entry| entry.platform.as_ref());
            // Attestations are for the platform `unknown`.
            let mut found: Vec<_> = platforms.filter(|platform| platform.os != "unknown").map(shown).collect();
            found.sort();
            found.dedup();
            found.truncate(20);
            Err(found)
        }
    }
}

fn check_size(host: &str, expected: Option<&Descriptor>, bytes: &[u8]) -> Result<(), RegistryError> {
    match expected {
        Some(expected) if expected.size != bytes.len() as u64 => Err(RegistryError::WrongSize {
            host: host.to_owned(),
            what: expected.digest.to_string(),
            received: bytes.len() as u64,
            expected: expected.size,
        }),
        _ => Ok(()),
    }
}

fn shown(platform: &Platform) -> String {
    let variant = platform.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
    printable(&format!("{}/{}{variant}", platform.os, platform.architecture), 60)
}

fn bad(reference: &Reference, why: String) -> RegistryError {
    RegistryError::BadImage { reference: reference.to_string(), why }
}
