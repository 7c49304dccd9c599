//! Listings, entries and changes of a sandbox's file system.

use sandling_wire::{DirParams, EntryView, Listing, PathParams, WatchParams};

use crate::convert::files::{checked_dir, resolved};
use crate::prelude::*;
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(stat)).routes(routes!(watch))
}

/// List a directory
#[utoipa::path(get, path = "/v1/sandboxes/{id}/fs/dir", params(DirParams), responses((status = 200, body = Listing)))]
async fn list(call: SandboxCall<Read>, Params(params): Params<DirParams>) -> Result<Json<Listing>, ApiError> {
    let (path, depth) = checked_dir(&call.sandbox, params)?;
    let entries = call.sandbox.list_dir(&path, depth).await?;
    Ok(Json(Listing { path, entries: entries.into_wire() }))
}

/// Look at one file, directory or link
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/stat", params(PathParams), responses((status = 200, body = EntryView)),
)]
async fn stat(call: SandboxCall<Read>, Params(params): Params<PathParams>) -> Result<Json<EntryView>, ApiError> {
    Ok(Json(call.sandbox.stat(&resolved(&call.sandbox, params.path)?).await?.into_wire()))
}

/// Follow changes under a path
///
/// Events: `change` with the `path` and the `kind` of the change.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/watch", params(WatchParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn watch(call: SandboxCall<Read>, Params(params): Params<WatchParams>) -> Result<Response, ApiError> {
    let path = resolved(&call.sandbox, params.path)?;
    // A missing path is refused with a status, before the stream begins.
    call.sandbox.stat(&path).await?;
    let mut watch = call.sandbox.watch(&path, params.recursive)?;
    Ok(sse::endless(call.app.closing(), move |events| async move {
        loop {
            match watch.next().await {
                Ok(change) => events.send("change", &change.into_wire()).await?,
                Err(error) => {
                    let error = ApiError::from(error);
                    return events
                        .send("error", &serde_json::json!({ "error": error.message, "code": error.code }))
                        .await;
                }
            }
        }
    }))
}
