//! Builds whose server ended before they did.

use std::sync::Arc;

use sandling_engine::EndReason;
use sandling_service::BuildRecord;

use super::begin::BUILD;
use crate::app::App;
use crate::error::ApiError;

/// Ends the machines of builds that were cut off.
pub(crate) async fn clear_up(app: Arc<App>) {
    if let Err(error) = end_machines(&app).await {
        tracing::warn!(error = error.message, "the machines of builds that were cut off may go on for a while");
    }
}

/// Whoever dies in the middle of this leaves it to the next server: that they failed is written down at the end.
async fn end_machines(app: &Arc<App>) -> Result<(), ApiError> {
    let cut_off = app.builds.cut_off()?;
    if cut_off.is_empty() {
        return Ok(());
    }
    app.engine.settled().await;
    for info in app.engine.list() {
        let is_its =
            |build: &BuildRecord| build.workspace == info.workspace && info.metadata.get(BUILD) == Some(&build.id);
        if cut_off.iter().any(is_its)
            && let Some(sandbox) = app.engine.get(&info.id)
        {
            sandbox.end(EndReason::Requested).await?;
        }
    }
    cut_off.iter().for_each(|build| app.builds.keep_cut_off(build));
    Ok(())
}
