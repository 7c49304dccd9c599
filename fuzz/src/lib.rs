//! Fuzz targets: every parser that reads bytes of a guest, of a client, of a server on the internet or of an imported
//! file. A target panics if a parser does, or if what it read breaks a promise.
//!
//! `scripts/fuzz.sh` runs them. The tests of this crate read the corpus once more, without a fuzzer.

mod input;
mod targets;

pub use targets::{TARGETS, Target};
