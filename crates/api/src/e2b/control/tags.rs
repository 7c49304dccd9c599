//! Names and tags of templates that were built.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::build::Source;
use crate::e2b::names::{self, Name};
use crate::e2b::refusal::unsupported;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::routes::templates::sizes;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/templates/aliases/{alias}", get(alias))
        .route("/templates/tags", post(add).delete(remove))
        .route("/templates/{id}/tags", get(list))
}

/// Whether there is a template of this name.
async fn alias(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(text): Parts<String>,
) -> Result<Json<Value>, ApiError> {
    let workspace = caller.workspace().as_str();
    let missing = |_| ApiError::not_found("template");
    match names::resolve(&app, workspace, &text)? {
        Source::Snapshot(_) | Source::Saved { .. } => {}
        Source::Template(name) => {
            sizes(&app, workspace, &name).map_err(missing)?;
        }
    }
    Ok(Json(json!({ "templateID": text, "public": false })))
}

async fn add(_: Caller<Run>) -> ApiError {
    unsupported("a template gets its tags when it is built: build it again with more of them")
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tags {
    name: String,
    tags: Vec<String>,
}

async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    body: JsonBody<Tags>,
) -> Result<StatusCode, ApiError> {
    let workspace = caller.workspace().as_str();
    let name = Name::parse(&body.value.name)?.name;
    for tag in body.value.tags {
        let found = names::built(&app, workspace, &Name::parse(&format!("{name}:{tag}"))?)?;
        let info = found.ok_or_else(|| ApiError::not_found("tag"))?;
        app.engine.delete_snapshot(workspace, &info.id).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let wanted = Name::parse(&id)?.name;
    let all = app.engine.list_snapshots(caller.workspace().as_str())?;
    let tags = all.iter().filter_map(|info| {
        let name = Name::from_snapshot(info).filter(|name| name.name == wanted)?;
        Some(json!({ "tag": name.tag, "buildID": info.id, "createdAt": info.created_at.to_string() }))
    });
    Ok(Json(tags.collect()))
}
