//! A project's way into a sandbox, and the diff's way back.
//!
//! What `.gitignore` names and what is in `.git` stay here: that is where secrets are. What comes back is a stranger's:
//! nothing is written outside the project, through a link, or into `.git`.

mod apply;
mod diff;
mod error;
mod transfer;
mod tree;

pub use diff::{Change, Diff};
pub use error::{Conflict, ProjectError};
pub use transfer::Project;
