//! Pulls images from registries: OCI distribution and Docker's registry API v2.
//!
//! This client is our own instead of `oci-client`, which brings reqwest and follows redirects to any address. Tenants
//! choose the registry, and a registry chooses where to redirect, so every connection goes to an address that was
//! checked: the client resolves the name, asks the caller about each address, and connects to the one that it checked.
//! Credentials go only to the registry that they belong to and to the token server that this registry names.
//!
//! A [`Client`] holds one tenant's credentials and tokens. Never share it between tenants.

mod auth;
mod blob;
mod client;
mod connect;
mod docker_config;
mod error;
mod exchange;
mod options;
mod resolve;
mod retry;
mod tls;

#[cfg(test)]
mod tests;

pub use blob::Progress;
pub use client::Client;
pub use docker_config::{DockerConfig, DockerConfigError};
pub use error::RegistryError;
pub use options::{AllowAddress, Credentials, CredentialsProvider, Endpoint, RegistryOptions, Role, Timeouts};
pub use resolve::Resolved;
