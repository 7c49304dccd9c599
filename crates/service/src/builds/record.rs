//! What the database stores about a build.

use jiff::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRecord {
    pub id: String,
    pub workspace: String,
    /// The name of the template.
    pub name: String,
    pub started_at: Timestamp,
    /// Missing while the build runs, and for good if it was interrupted.
    pub ended: Option<(Timestamp, BuildEnd)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEnd {
    Done { bytes: u64 },
    Failed { why: String, step: String },
}
