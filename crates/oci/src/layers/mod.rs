//! Reads the layers of an image, bottom-up and in one pass, into a tree of inodes in memory.
//!
//! Nothing here touches the host's file system. The content of regular files is written to the blocks of the new file
//! system while a layer is read. Where the image specification leaves room, the result is that of `umoci unpack`.

mod apply;
mod entry;
mod error;
mod input;
mod limits;
mod numeric;
mod pax;
mod sparse;
mod tar_reader;
mod tree;

pub(crate) use apply::{Applier, apply_layer};
pub(crate) use entry::EntryKind;
pub use error::LayerError;
pub use input::LayerInput;
pub(crate) use input::LayerStream;
pub use limits::Limits;
pub(crate) use tree::{Inode, InodeId, Metadata, NodeKind, Tree};
