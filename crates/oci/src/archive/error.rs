//! Why a file is not an image that can be used.

use std::io;
use std::path::PathBuf;

use crate::digest::Digest;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not an image: it is neither an OCI layout nor a tar archive", path.display())]
    NotAnImage { path: PathBuf },
    #[error("{} is a compressed image archive; decompress it first, for example with gunzip or zstd -d", path.display())]
    Compressed { path: PathBuf },
    #[error("the image archive has no `{name}`")]
    Missing { name: String },
    #[error("`{name}` in the image archive is larger than {limit} bytes")]
    DocumentTooLarge { name: String, limit: u64 },
    #[error("`{name}` in the image archive is malformed: {reason}")]
    BadDocument { name: String, reason: String },
    #[error("the content of `{expected}` in the image archive does not match its digest")]
    DigestMismatch { expected: Digest },
    #[error("the archive has {count} images ({names}); save one image per file")]
    SeveralImages { count: usize, names: String },
    #[error("the image is for {platforms}; only linux/amd64 can run here")]
    WrongPlatform { platforms: String },
    #[error("the image has {layers} layers, but its configuration lists {diff_ids}")]
    LayerCount { layers: usize, diff_ids: usize },
    #[error("the image archive has more than {limit} entries")]
    TooManyEntries { limit: usize },
}
