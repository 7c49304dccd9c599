//! A template's root disk: [`bootstrap`] installs packages into a tree, and [`ext4`] makes an image of the tree.

pub(crate) mod bootstrap;
pub(crate) mod ext4;
mod output;
pub(crate) mod tree;
