//! Deletes workspaces.

use sandling_service::WorkspaceName;

use crate::app::App;
use crate::error::ApiError;

/// Refused while the workspace owns sandboxes.
pub(crate) async fn delete_workspace(app: &App, name: &WorkspaceName) -> Result<(), ApiError> {
    app.engine.settled().await;
    let owned = || app.engine.list_of(name.as_str()).len() as u64;
    app.service.admission.delete_workspace(name, owned)?;
    app.end_unauthorized();
    app.service.images.forget_workspace(name);
    app.engine.volumes().delete_all_of(name.as_str())?;
    Ok(())
}
