//! What the operator decides about registries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sandling_proxy::{BadProxy, UpstreamProxy};

#[derive(Clone, Default)]
pub struct ImageSettings {
    /// Registries (`host` or `host:port`) that every workspace may pull from although they are at private addresses, and
    /// that may use `http://`.
    pub allowed: BTreeSet<String>,
    /// For a registry, the mirrors to ask first.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Certificates (PEM) to trust besides those of the system.
    pub extra_ca: Vec<u8>,
    pub proxy: Option<UpstreamProxy>,
    /// A Docker configuration whose credentials the default workspace uses.
    pub docker_config: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadSetting {
    #[error("`{0}` is not a mirror: write REGISTRY=MIRROR, for example docker.io=mirror.example.org")]
    Mirror(String),
    #[error("cannot read the certificates in {}", .path.display())]
    Certificates { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Proxy(#[from] BadProxy),
}

impl ImageSettings {
    /// The proxy and the Docker configuration that this process's environment names.
    pub fn from_environment() -> Result<Self, BadSetting> {
        let proxy = UpstreamProxy::from_environment()?;
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = path("DOCKER_CONFIG").or_else(|| path("HOME").map(|home| home.join(".docker")));
        Ok(Self { proxy, docker_config: directory.map(|directory| directory.join("config.json")), ..Self::default() })
    }

    /// Adds mirrors that are written as `REGISTRY=MIRROR`.
    pub fn with_mirrors(mut self, texts: &[String]) -> Result<Self, BadSetting> {
        for text in texts {
            let bad = || BadSetting::Mirror(text.clone());
            let (registry, mirror) = text.split_once('=').ok_or_else(bad)?;
            self.mirrors.entry(registry.to_owned()).or_default().push(mirror.to_owned());
        }
        Ok(self)
    }

    /// Adds the certificates in a file.
    pub fn with_certificates(mut self, path: Option<&PathBuf>) -> Result<Self, BadSetting> {
        if let Some(path) = path {
            let read = std::fs::read(path);
            self.extra_ca = read.map_err(|source| BadSetting::Certificates { path: path.clone(), source })?;
        }
        Ok(self)
    }
}
