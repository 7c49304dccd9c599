//! Templates on the disk.
//!
//! ```text
//! roots/<id>/{root.img, part.json, stamps/}   parts: immutable, named by their content
//! kernels/<id>/{vmlinuz, modules/, …}
//! initrds/<id>/{initrd, …}
//! images/<id>/{manifest.json, baked/<key>/}   an image: which parts, from which recipe; what the engine baked from it
//! names/<name>.json                           a template's name: which image
//! scratch/, lock                              what is being made, by whoever holds the lock
//! ```
//!
//! Everything is written to `scratch`, brought to the disk and renamed. Only a name ever changes, last of all, so a
//! build that is cut anywhere leaves the template as it was.

mod build;
mod image;
mod inputs;
mod lock;
mod names;
mod parts;
mod read;
mod remove;
#[cfg(test)]
mod tests;

pub use build::BuildOptions;
pub use image::Image;
pub use read::{ImageStore, Listed};
