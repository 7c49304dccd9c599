//! Templates from OCI images: a reference becomes a digest, and a digest becomes a template of the workspace.
//!
//! What always holds:
//! - The size of an image is checked against the quota after its registry has named it, and before anything is fetched.
//! - A workspace gets a stored layer only if the registry that the layer came from accepts the workspace's credentials.
//! - A pull that fails leaves neither a template nor files behind, except complete layers, which are a cache.

mod access;
mod config;
mod credentials;
mod disk;
mod error;
mod images_of_home;
mod layers;
mod locks;
mod progress;
mod pull;
mod rows;
mod settings;

pub use config::process_defaults;
pub use credentials::{CredentialError, RegistryLogin};
pub use error::ImageError;
pub use images_of_home::Images;
pub use progress::{OnStep, PullView};
pub use pull::NamedImage;
pub use settings::{BadSetting, ImageSettings};
