//! What the database stores about a build.

use jiff::Timestamp;

#[derive(Debug, Clone)]
pub struct BuildRecord {
    pub id: String,
    pub workspace: String,
    /// The name of the template.
    pub name: String,
    pub started_at: Timestamp,
    /// [`Stage::Done`] or [`Stage::Failed`]. Missing while the build runs, and for good if it was interrupted.
    pub ended: Option<Stage>,
}

#[derive(Debug, Clone, Default)]
pub enum Stage {
    /// The build has an id, but its steps are not known yet.
    #[default]
    Registered,
    Queued,
    Running,
    Done {
        at: Timestamp,
        bytes: u64,
    },
    Failed {
        at: Timestamp,
        why: String,
        /// Where it failed: `base`, the number of a step, or `finalize`.
        step: String,
    },
}
