//! Listings, entries and changes of a sandbox's file system.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use sandling_wire::{DirParams, EntryView, Listing, PathParams, WatchParams};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::convert::IntoWire;
use crate::convert::files::{checked, checked_dir};
use crate::error::ApiError;
use crate::extract::{Params, Parts};
use crate::sse;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(stat)).routes(routes!(watch))
}

/// List a directory
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/dir", tag = "files", params(("id" = String, Path), DirParams),
    responses((status = 200, body = Listing)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<DirParams>,
) -> Result<Json<Listing>, ApiError> {
    let (path, depth) = checked_dir(params)?;
    let entries = caller.sandbox(&app, &id).await?.list_dir(&path, depth).await?;
    Ok(Json(Listing { path, entries: entries.into_iter().map(IntoWire::into_wire).collect() }))
}

/// Look at one file, directory or link
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/stat", tag = "files", params(("id" = String, Path), PathParams),
    responses((status = 200, body = EntryView)),
)]
async fn stat(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<PathParams>,
) -> Result<Json<EntryView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    Ok(Json(sandbox.stat(&checked(params.path)?).await?.into_wire()))
}

/// Follow changes under a path
///
/// Events: `change` with the `path` and the `kind` of the change.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/fs/watch", tag = "files", params(("id" = String, Path), WatchParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn watch(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(params): Params<WatchParams>,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let path = checked(params.path)?;
    // A missing path is refused with a status, before the stream begins.
    sandbox.stat(&path).await?;
    let mut watch = sandbox.watch(&path, params.recursive)?;
    Ok(sse::endless(app.closing(), move |events| async move {
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
