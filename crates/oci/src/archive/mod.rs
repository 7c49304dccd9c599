//! Images from files: archives of `docker save` and `podman save`, OCI layouts, and plain archives of a root file system.
//!
//! Only documents are read here. Layers stay where they are until the jail reads them.

mod docker;
mod error;
mod layout;
mod open;
mod store;

pub use error::ArchiveError;
pub use open::{Image, open_image};
