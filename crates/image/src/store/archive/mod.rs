//! A template as one file, which another host can import.
//!
//! ```text
//! a zstd stream of a tar with regular and sparse files, in this order:
//!     sandling-template.json        the header: format, name, image, bakes
//!     manifest.json                 the image's manifest
//!     root/…, kernel/…, initrd/…    the files of its parts, in alphabetical order
//!     baked/<key>/…                 the files of each bake that the header lists
//! ```
//!
//! The header and the manifest determine every later path, size and digest. An import therefore uses no path from the tar
//! itself: it compares each with the one that must come next.

mod error;
mod export;
mod header;
mod import;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::ArchiveError;
pub use export::{ExportOptions, ExportedArchive};
pub use header::ArchiveHeader;
pub use import::{Existing, ImportRules, ImportedImage};
