//! Why no template can be made of an image.

use sandling_engine::TemplateError;
use sandling_engine::store::StoreError;
use sandling_oci::registry::RegistryError;
use sandling_oci::{ArchiveError, BadReference, JailError};

use crate::admission::AdmitError;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Reference(#[from] BadReference),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{reference} cannot be unpacked: {source}")]
    Unpack { reference: String, source: JailError },
    #[error("{reference} does not fit on a disk of {disk_mib} MiB, which is the largest for an image of its size")]
    TooLarge { reference: String, disk_mib: u32 },
    #[error("a file of an image cannot be written")]
    File(#[source] std::io::Error),
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is closing")]
    CutOff,
}
