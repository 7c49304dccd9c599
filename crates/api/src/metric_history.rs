//! The history of a sandbox's resource usage, for all dialects.

use sandling_engine::SandboxId;
use sandling_service::{History, HistoryQuery};

use crate::call::Call;
use crate::convert::metrics::series_info;
use crate::error::ApiError;

const FINEST_STEP: u64 = 5;

/// The history of a sandbox of the caller's workspace, which may have ended. A new one has no points yet.
pub(crate) async fn sandbox_history<N>(call: &Call<N>, query: &HistoryQuery) -> Result<History, ApiError> {
    let missing = || ApiError::not_found("sandbox");
    let id = SandboxId::parse(&call.item).ok_or_else(missing)?;
    let stored = call.app.service.metrics.of_sandbox(call.workspace(), &id, query);
    if let Some(found) = stored.map_err(|error| ApiError::internal(&error))? {
        return Ok(found);
    }
    let info = call.caller.sandbox(&call.app, &call.item).await?.info();
    Ok(History { info: series_info(&info), step: query.step.unwrap_or(FINEST_STEP), points: Vec::new() })
}
