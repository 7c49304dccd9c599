//! Names and tags of built templates.

use axum::routing::{get, post};
use sandling_engine::SnapshotInfo;
use sandling_service::{TemplateSource, template_size};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::e2b::names::{self, DEFAULT_TAG, Name};
use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/templates/aliases/{alias}", get(alias))
        .route("/templates/tags", post(add).delete(remove))
        .route("/templates/{id}/tags", get(list))
}

/// Tells whether a template of this name exists.
async fn alias(call: Call<Read>) -> Result<Json<Value>, ApiError> {
    let workspace = call.workspace().as_str();
    let exists = match names::resolve(&call.app, workspace, &call.item)? {
        TemplateSource::Snapshot(_)
        | TemplateSource::Saved { .. }
        | TemplateSource::Image(_)
        | TemplateSource::Scratch => true,
        TemplateSource::Template(name) => {
            template_size(&call.app.engine, workspace, &name).is_ok()
                || !names::tags_of_bare(&call.app, workspace, &call.item)?.is_empty()
        }
    };
    if !exists {
        return Err(ApiError::not_found("template"));
    }
    Ok(Json(json!({ "templateID": call.item, "public": false })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Assigned {
    target: String,
    tags: Vec<String>,
}

/// Adds tags to a built template. A tag that another build has moves to this one.
async fn add(call: Call<Run>, body: JsonBody<Assigned>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let workspace = call.workspace().as_str();
    let Assigned { target, tags } = body.value;
    let target = Name::parse(&target)?;
    let info = names::tagged(&call.app, workspace, &target)?.ok_or_else(|| ApiError::not_found("template"))?;
    let wanted = tags.iter().map(|tag| Name::parse(&format!("{}:{tag}", target.name)));
    for name in wanted.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|name| *name != target) {
        names::tag(&call.app, workspace, &name, &info).await?;
    }
    Ok((StatusCode::CREATED, Json(json!({ "tags": tags, "buildID": names::build_id(&info) }))))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tags {
    name: String,
    tags: Vec<String>,
}

async fn remove(call: Call<Run>, body: JsonBody<Tags>) -> Result<StatusCode, ApiError> {
    let workspace = call.workspace().as_str();
    let name = Name::parse(&body.value.name)?.name;
    if body.value.tags.iter().any(|tag| tag == DEFAULT_TAG) {
        return Err(ApiError::bad_request(format!("the tag {DEFAULT_TAG:?} cannot be removed; delete the template")));
    }
    for tag in body.value.tags {
        if !names::untag(&call.app, workspace, &Name::parse(&format!("{name}:{tag}"))?).await? {
            return Err(ApiError::not_found("tag"));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn list(call: Call<Read>) -> Result<Json<Vec<Value>>, ApiError> {
    let name = Name::parse(&call.item)?.name;
    let tags = names::tags(&call.app, call.workspace().as_str(), &name)?;
    Ok(Json(tags.iter().map(|(tag, info)| view(tag, info)).collect()))
}

fn view(tag: &str, info: &SnapshotInfo) -> Value {
    json!({ "tag": tag, "buildID": names::build_id(info), "createdAt": info.created_at.to_string() })
}
