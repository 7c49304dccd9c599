//! Workspaces: every object belongs to one, and is invisible to the others.

mod rows;
mod workspace;

pub use workspace::{Workspace, WorkspaceError, WorkspaceName, Workspaces};
