//! Copies a project into a sandbox, and a diff back.
//!
//! Files that `.gitignore` names, and `.git`, stay on the host, because they may hold secrets. What comes back is
//! untrusted: nothing is written outside the project, through a link, or into `.git`.

mod apply;
mod diff;
mod error;
mod transfer;
mod tree;

pub use diff::{BY_PRODUCTS, Change, Diff};
pub use error::{Conflict, ProjectError};
pub use transfer::Project;
pub use tree::{Node, ProjectTree};
