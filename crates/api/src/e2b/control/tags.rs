//! Names and tags of built templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use sandling_engine::SnapshotInfo;
use sandling_service::{TemplateSource, template_size};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::e2b::names::{self, Name};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/templates/aliases/{alias}", get(alias))
        .route("/templates/tags", post(add).delete(remove))
        .route("/templates/{id}/tags", get(list))
}

/// Tells whether a template of this name exists.
async fn alias(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(text): Parts<String>,
) -> Result<Json<Value>, ApiError> {
    let workspace = caller.workspace().as_str();
    let missing = |_| ApiError::not_found("template");
    match names::resolve(&app, workspace, &text)? {
        TemplateSource::Snapshot(_) | TemplateSource::Saved { .. } => {}
        TemplateSource::Template(name) => {
            template_size(&app.engine, workspace, &name).map_err(missing)?;
        }
    }
    Ok(Json(json!({ "templateID": text, "public": false })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Assigned {
    target: String,
    tags: Vec<String>,
}

/// Adds tags to a built template. A tag that another build has moves to this one.
async fn add(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    body: JsonBody<Assigned>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let workspace = caller.workspace().as_str();
    let Assigned { target, tags } = body.value;
    let target = Name::parse(&target)?;
    let info = names::tagged(&app, workspace, &target)?.ok_or_else(|| ApiError::not_found("template"))?;
    let wanted = tags.iter().map(|tag| Name::parse(&format!("{}:{tag}", target.name)));
    for name in wanted.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|name| *name != target) {
        names::tag(&app, workspace, &name, &info).await?;
    }
    Ok((StatusCode::CREATED, Json(json!({ "tags": tags, "buildID": info.id }))))
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
        if !names::untag(&app, workspace, &Name::parse(&format!("{name}:{tag}"))?).await? {
            return Err(ApiError::not_found("tag"));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let wanted = Name::parse(&id)?.name;
    let workspace = caller.workspace().as_str();
    let built = app.engine.snapshots().list(workspace)?.into_iter().filter_map(|info| {
        let name = Name::from_snapshot(&info).filter(|name| name.name == wanted)?;
        Some((name.tag, info))
    });
    let mut tags: BTreeMap<String, SnapshotInfo> = names::aliases(&app, workspace, &wanted)?.into_iter().collect();
    tags.extend(built);
    let view = |(tag, info): (String, SnapshotInfo)| json!({ "tag": tag, "buildID": info.id, "createdAt": info.created_at.to_string() });
    Ok(Json(tags.into_iter().map(view).collect()))
}
