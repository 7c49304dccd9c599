//! Writes the metadata of an ext4 file system into a file whose blocks hold the content.
//!
//! Crates that write ext4 exist (mkext4, arcbox-ext4), but none fits: they need the size of every file before the first
//! byte, or write by path to the host's file system, and both keep the blocks of files that a later layer replaces. Here,
//! the content of files is written while layers are read, and the metadata when the tree is complete. So the inode tables
//! follow the data, which the feature flex_bg allows.
//!
//! The image is sparse and depends only on its input. It has no journal, for the reasons given where templates are built,
//! no checksums of metadata, which cost time under emulation, and no `lost+found`, so that it has exactly the image's files.

mod directory;
mod inode;
mod metadata;
mod superblock;
mod xattrs;

pub(crate) use metadata::write_metadata;
