//! Templates on the disk.
//!
//! ```text
//! roots/<id>/{root.img, part.json, stamps/}   parts: immutable, named by their content
//! kernels/<id>/{vmlinuz, modules/, …}
//! initrds/<id>/{initrd, …}
//! images/<id>/{manifest.json, baked/<key>/}   an image: its parts and recipe; the engine's bakes of it
//! names/<name>.json                           a template's name: its image
//! trees/<inputs>.tar.gz                       Debian's packages, unpacked, for the next template that begins with them
//! scratch/, lock                              unfinished files of the build or import that holds the lock
//! ```
//!
//! Everything is written to `scratch`, synced and renamed. Only names change, and a build changes its name last, so an
//! interrupted build leaves the template as it was.

mod archive;
mod build;
mod image;
mod lock;
mod names;
mod parts;
mod read;
mod remove;
#[cfg(test)]
mod tests;

pub use archive::{ArchiveError, ArchiveHeader, Existing, ExportOptions, ExportedArchive, ImportRules, ImportedImage};
pub use build::{BuildOptions, RootMaker};
pub use image::Image;
pub(crate) use read::parse_manifest;
pub use read::{ImageStore, TemplateEntry};
