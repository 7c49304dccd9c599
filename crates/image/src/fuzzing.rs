//! The parsers of untrusted bytes, for fuzzing. No part of the crate's API.

use crate::manifest::Manifest;
use crate::store::parse_manifest;

/// Reads a manifest. `None` if the store refuses it.
pub fn read_manifest(text: &[u8]) -> Option<Manifest> {
    parse_manifest(text).ok().filter(Manifest::is_consistent)
}
