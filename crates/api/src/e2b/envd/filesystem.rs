//! Lists, creates, moves and removes files and directories.

use axum::extract::State;
use axum::routing::post;
use sandling_engine::Cause;
use sandling_protocol::EntryKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::entries::{Names, looked_at, view};
use super::paths::resolve;
use crate::e2b::place::Envd;
use crate::prelude::*;

const DEEPEST: u32 = 64;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(stat))
        .route("/filesystem.Filesystem/ListDir", post(list_dir))
        .route("/filesystem.Filesystem/MakeDir", post(make_dir))
        .route("/filesystem.Filesystem/Move", post(rename))
        .route("/filesystem.Filesystem/Remove", post(remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    path: String,
    depth: u32,
    source: String,
    destination: String,
}

async fn stat(_: State<Arc<App>>, envd: Envd, body: JsonBody<About>) -> Result<Json<Value>, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), &body.value.path).await?;
    Ok(Json(json!({ "entry": looked_at(&envd.sandbox, &path).await? })))
}

async fn list_dir(_: State<Arc<App>>, envd: Envd, body: JsonBody<About>) -> Result<Json<Value>, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), &body.value.path).await?;
    if envd.sandbox.stat(&path).await?.kind != EntryKind::Directory {
        return Err(ApiError::bad_request(format!("{path} is not a directory")));
    }
    let mut entries = envd.sandbox.list_dir(&path, body.value.depth.clamp(1, DEEPEST)).await?;
    for entry in entries.iter_mut().filter(|entry| entry.kind == EntryKind::Symlink) {
        // A symbolic link is shown as its target. If the target does not exist, the link itself is shown.
        if let Ok(followed) = envd.sandbox.stat(&entry.path).await {
            *entry = followed;
        }
    }
    let names = Names::for_entries(&envd.sandbox, &entries).await;
    Ok(Json(json!({ "entries": entries.iter().map(|entry| view(entry, &names)).collect::<Vec<_>>() })))
}

async fn make_dir(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<About>) -> Result<Json<Value>, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), &body.value.path).await?;
    match envd.sandbox.stat(&path).await {
        Ok(entry) if entry.kind == EntryKind::Directory => {
            return Err(ApiError::conflict("already_exists", format!("{path} already exists")));
        }
        Ok(_) => return Err(ApiError::bad_request(format!("{path} exists and is not a directory"))),
        Err(_) => {
            app.engine.before(&envd.sandbox, Cause::Files, &format!("make {path}")).await?;
            envd.sandbox.make_dir_for(envd.user(), &path).await?;
        }
    }
    Ok(Json(json!({ "entry": looked_at(&envd.sandbox, &path).await? })))
}

async fn rename(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<About>) -> Result<Json<Value>, ApiError> {
    let from = resolve(&envd.sandbox, envd.user(), &body.value.source).await?;
    let to = resolve(&envd.sandbox, envd.user(), &body.value.destination).await?;
    app.engine.before(&envd.sandbox, Cause::Files, &format!("move {from} to {to}")).await?;
    envd.sandbox.move_path(&from, &to).await?;
    Ok(Json(json!({ "entry": looked_at(&envd.sandbox, &to).await? })))
}

/// Removing a path that does not exist succeeds.
async fn remove(State(app): State<Arc<App>>, envd: Envd, body: JsonBody<About>) -> Result<Json<Value>, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), &body.value.path).await?;
    app.engine.before(&envd.sandbox, Cause::Files, &format!("remove {path}")).await?;
    match envd.sandbox.remove(&path, true).await.map_err(ApiError::from) {
        Err(error) if error.status != StatusCode::NOT_FOUND => Err(error),
        _ => Ok(Json(json!({}))),
    }
}
