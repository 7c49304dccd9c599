//! Finds snapshots by their id or name.

use sandling_engine::SnapshotId;
use sandling_service::WorkspaceName;

use crate::app::App;
use crate::error::ApiError;

/// The id of a workspace's snapshot, given its id or its name. Of several with one name, it is the newest.
pub(crate) fn resolve(app: &App, workspace: &WorkspaceName, named: &str) -> Result<SnapshotId, ApiError> {
    if let Some(id) = SnapshotId::parse(named) {
        return Ok(id);
    }
    if let Some(id) = by_name(app, workspace.as_str(), named)? {
        return Ok(id);
    }
    // A copy of another node's, brought here for a create a moment ago.
    let fetched = app.engine.snapshots().fetched_by_name(workspace.as_str(), named)?;
    fetched.map(|info| info.id).ok_or_else(|| ApiError::not_found("snapshot"))
}

/// Refuses a name that another snapshot of the workspace has.
pub(crate) fn check_free(app: &App, workspace: &WorkspaceName, name: &str) -> Result<(), ApiError> {
    if SnapshotId::parse(name).is_some() {
        return Err(ApiError::bad_request("the name of a snapshot must not be an id"));
    }
    match by_name(app, workspace.as_str(), name)? {
        None => Ok(()),
        Some(id) => {
            let message = format!(
                "the name `{name}` belongs to snapshot {id}; delete that snapshot first, or choose another name"
            );
            Err(ApiError::conflict("name_taken", message))
        }
    }
}

/// Finds a snapshot by its id or name.
pub(crate) fn find(app: &App, workspace: &str, named: &str) -> Result<Option<SnapshotId>, ApiError> {
    match SnapshotId::parse(named) {
        Some(id) => Ok(app.engine.snapshots().find(workspace, &id)?.map(|info| info.id)),
        None => by_name(app, workspace, named),
    }
}

fn by_name(app: &App, workspace: &str, name: &str) -> Result<Option<SnapshotId>, ApiError> {
    let oldest_first = app.engine.snapshots().list(workspace)?;
    Ok(oldest_first.into_iter().rev().find(|info| info.name.as_deref() == Some(name)).map(|info| info.id))
}
