//! Options for OCI images and their registries.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sandling_service::{BadSetting, ImageSettings};

/// The operator's settings for the images of all workspaces.
#[derive(Debug, Args)]
pub struct OperatorImages {
    /// Let every workspace pull images from this registry, although it is at a private address or uses http://; may be
    /// repeated
    #[arg(long, value_name = "HOST[:PORT]", env = "SANDLING_REGISTRY_ALLOW", value_delimiter = ',')]
    pub registry_allow: Vec<String>,
    /// Ask this mirror before the registry, e.g. docker.io=mirror.example.org; may be repeated
    #[arg(long, value_name = "REGISTRY=MIRROR", env = "SANDLING_REGISTRY_MIRROR", value_delimiter = ',')]
    pub registry_mirror: Vec<String>,
    /// Trust the certificates in this file (PEM) for registries, besides those of the system
    #[arg(long, value_name = "FILE", env = "SANDLING_REGISTRY_CA")]
    pub registry_ca: Option<PathBuf>,
}

impl OperatorImages {
    pub fn settings(&self) -> Result<ImageSettings, BadSetting> {
        let settings = ImageSettings::from_environment()?;
        let settings = ImageSettings { allowed: self.registry_allow.iter().cloned().collect(), ..settings };
        settings.with_mirrors(&self.registry_mirror)?.with_certificates(self.registry_ca.as_ref())
    }
}

#[derive(Debug, Subcommand)]
pub enum RegistryCommand {
    /// Store credentials for a registry; the password is read from stdin
    #[command(after_help = "Example:\n  sandling registry login ghcr.io --username ann <token.txt")]
    Login {
        /// Registry: host or host:port
        #[arg(default_value = "docker.io", value_name = "REGISTRY")]
        registry: String,
        /// User of the registry
        #[arg(short, long, value_name = "NAME")]
        username: String,
    },
    /// Remove the credentials for a registry
    Logout {
        #[arg(default_value = "docker.io", value_name = "REGISTRY")]
        registry: String,
    },
    /// List registries with credentials; passwords are not shown
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
}
