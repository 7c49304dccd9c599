//! A template's root disk: Debian packages into a tree ([`bootstrap`]), the tree into an ext4 image ([`ext4`]).

pub(crate) mod bootstrap;
pub(crate) mod ext4;
mod output;
pub(crate) mod tree;
pub(crate) mod workspace;
