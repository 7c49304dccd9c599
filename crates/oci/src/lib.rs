//! OCI images: references, registries, archives, and an ext4 file system made of their layers.
//!
//! This crate knows no template and no machine. Everything that it reads was written by a stranger.

mod archive;
mod blocks;
mod digest;
mod ext4;
mod jail;
mod layers;
mod reference;
pub mod registry;
mod spec;
mod unpack;

pub use archive::{ArchiveError, Image, open_image};
pub use blocks::Ext4Error;
pub use digest::{BadDigest, Digest};
pub use jail::{Jail, JailError, UNPACK_ARGUMENT, Unpacked, unpack_main};
#[doc(hidden)]
pub use jail::{Work, confined_main};
pub use layers::{LayerError, LayerInput, Limits};
pub use reference::{BadReference, Reference};
pub use spec::{Config, Descriptor, Healthcheck, History, ImageConfig, Index, Manifest, Platform, RootFs};
pub use unpack::{Extra, Progress, Summary, UnpackError, UnpackOptions, unpack};
