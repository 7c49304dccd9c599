//! The bytes of a fleet: snapshots as immutable packs in a shared directory or in S3.
//!
//! ```text
//! PREFIX/fleet             which fleet the store belongs to
//!        packs/HH/DIGEST   a part of a file of a snapshot: compressed, encrypted, and named by the BLAKE3 digest of its bytes
//!        manifests/DIGEST  which packs a snapshot is made of, packed and named likewise
//!        records           a copy of the records that say which manifests there are, for the loss of etcd
//!        clock             written to learn the store's time
//! ```
//!
//! A pack or manifest never changes, and two nodes that write one name write the same bytes, so writing needs no agreement.
//! The store is not trusted: what comes from it is compared with its name before anything else looks at it. Only the fleet's
//! nodes have the key.

mod blobs;
mod chunks;
mod clock;
mod connector;
mod error;
mod fetch;
mod location;
mod manifest;
mod packed_files;
mod packs;
mod records_copy;
mod registry;
mod sweep;
mod sweep_turn;
#[cfg(test)]
mod tests;
mod upload;

pub use crate::digest::Digest;
pub use blobs::Blobs;
pub use chunks::CHUNK;
pub use error::StoreError;
pub use fetch::{FetchFile, PeerChunks};
pub use location::StoreLocation;
pub use manifest::{Chunk, MadeOn, ManifestError, OfTemplate, Scope, StoredFile, StoredSnapshot};
pub use packed_files::PackedFiles;
pub use registry::{SnapshotRecord, SnapshotRecords};
pub use sweep::{GRACE, SweepError, Swept, sweep};
pub use sweep_turn::{SweepsBefore, Uploaded};
pub use upload::UploadFile;
