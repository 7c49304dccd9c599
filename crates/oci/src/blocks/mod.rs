//! The blocks of a disk: which are free, what is written to them, and where a file's content lies.
//!
//! Layers write the content of files here while they are read; `ext4` adds the metadata at the end.

mod allocator;
mod content;
mod error;
pub(crate) mod extents;
mod geometry;
pub(crate) mod le;

pub(crate) use content::{BlockWriter, FileContent};
pub use error::Ext4Error;
pub(crate) use extents::Extent;
pub(crate) use geometry::*;
