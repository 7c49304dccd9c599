//! A template's root disk: [`bootstrap`] installs Debian's packages into a tree, or [`kept_tree`] has it from an earlier
//! build; [`additions`] come on top; and [`ext4`] makes an image of the tree.

pub(crate) mod additions;
pub(crate) mod bootstrap;
pub(crate) mod ext4;
pub(crate) mod kept_tree;
mod output;
pub(crate) mod tree;
