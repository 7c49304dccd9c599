//! The built files of the dashboard, compressed, as part of the binary.
//!
//! `scripts/dashboard.sh` builds them with npm. A build without them works, and [`FILES`] is then empty.

/// One file, in the two encodings that browsers accept.
pub struct File {
    /// Relative to the dashboard's address, e.g. `assets/index-3f2a.js`.
    pub path: &'static str,
    pub gzip: &'static [u8],
    pub brotli: &'static [u8],
}

/// All files. `index.html` is one of them, unless this build has no dashboard.
pub static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file at a path.
pub fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}
