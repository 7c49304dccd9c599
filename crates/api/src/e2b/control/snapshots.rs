//! Snapshots. Sandboxes can be created from them as from templates.

use axum::routing::{delete, get, post};
use sandling_engine::{Kept, SnapshotInfo, SnapshotSpec, State as SandboxState};
use sandling_service::TemplateSource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use super::list::{Key, Order, paged};
use super::sandboxes::kept;
use crate::e2b::names::{self, Name};
use crate::e2b::place::parse_id;
use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/sandboxes/{id}/snapshots", post(make))
        .route("/snapshots", get(list))
        .route("/templates/{id}", delete(remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SnapshotRequest {
    name: Option<String>,
    memory: Option<bool>,
}

async fn make(call: SandboxCall<Run>, body: JsonBody<SnapshotRequest>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name = body.value.name.filter(|name| !name.is_empty());
    let parsed = name.as_deref().map(Name::parse).transpose()?;
    let workspace = call.workspace().as_str();
    if let Some(Name { name, .. }) = &parsed
        && (names::is_taken(name) || call.app.engine.built_in(workspace, name)?.is_some())
    {
        return Err(ApiError::bad_request(format!("{name:?} is the name of a built-in template; choose another")));
    }
    let older = named(&call.app, workspace, parsed.as_ref())?;
    let spec = SnapshotSpec { name, volumes: None, kept: kept(body.value.memory) };
    let place = call.app.service.sandboxes.reserve_snapshot(call.workspace(), &call.sandbox).await?;
    let info = call.sandbox.info();
    let slept = info.state == SandboxState::Hibernated;
    if slept {
        call.sandbox.wake().await?;
    }
    let saved = call.app.engine.snapshot(&call.sandbox, spec).await;
    drop(place);
    if slept {
        // The sandbox was hibernated before, and the call.caller did not ask to wake it.
        let kept = if info.sleeps_without_memory() { Kept::Disk } else { Kept::Everything };
        call.sandbox.hibernate_keeping(kept).await?;
    }
    let saved = saved?.0;
    // As with E2B, a name stands for the newest snapshot that has it.
    for info in older {
        if let Err(error) = call.app.engine.snapshots().delete(workspace, &info.id).await {
            // Another snapshot of this name may have replaced it first. The new one is there in any case.
            tracing::warn!(
                snapshot = info.id.as_str(),
                error = &error as &dyn std::error::Error,
                "a snapshot that a newer one replaces was not deleted"
            );
        }
    }
    let all = call.app.engine.snapshots().list(workspace)?;
    Ok((StatusCode::CREATED, Json(view(&all, &saved))))
}

/// The name and tag of a snapshot that was not built as a template.
fn name_of(info: &SnapshotInfo) -> Option<Name> {
    let is_template = Name::from_snapshot(info).is_some();
    info.name.as_deref().filter(|_| !is_template).and_then(|name| Name::parse(name).ok())
}

/// The snapshots that have this name.
fn named(app: &App, workspace: &str, name: Option<&Name>) -> Result<Vec<SnapshotInfo>, ApiError> {
    let mut all = app.engine.snapshots().list(workspace)?;
    all.retain(|info| name.is_some() && name_of(info).as_ref() == name);
    Ok(all)
}

/// A named snapshot has its name as id, so that a newer one of the same name has the same id. If the name leads to something
/// else among all snapshots, it has its own id.
fn id_of(all: &[SnapshotInfo], info: &SnapshotInfo) -> String {
    let is_found = |name: &Name| names::newest(all, name).is_some_and(|newest| newest.id == info.id);
    let name = name_of(info).filter(|name| !names::is_taken(&name.name) && is_found(name));
    name.map_or_else(|| info.id.to_string(), |Name { name, tag }| format!("{name}:{tag}"))
}

/// Nodes of a fleet order their snapshots by time, which E2B's own answer does not have.
fn view(all: &[SnapshotInfo], info: &SnapshotInfo) -> Value {
    let names: Vec<_> = info.name.iter().collect();
    json!({ "snapshotID": id_of(all, info), "names": names, "createdAt": info.created_at.to_string() })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SnapshotParams {
    #[serde(rename = "sandboxID")]
    sandbox_id: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

async fn list(call: Call<Read>, Params(wanted): Params<SnapshotParams>) -> Result<Response, ApiError> {
    let everything = call.app.engine.snapshots().list(call.workspace().as_str())?;
    let mut all = everything.clone();
    all.retain(|info| Name::from_snapshot(info).is_none());
    if let Some(id) = wanted.sandbox_id.filter(|id| !id.is_empty()) {
        let id = parse_id(&id);
        all.retain(|info| Some(&info.sandbox) == id.as_ref());
    }
    if let Some(name) = wanted.name.filter(|name| !name.is_empty()) {
        let wanted = Name::parse(&name).ok();
        all.retain(|info| info.id.as_str() == name || wanted.is_some() && name_of(info) == wanted);
    }
    let key = |info: &SnapshotInfo| Key::new(info.created_at, &id_of(&everything, info));
    paged(all, Order::NewestFirst, wanted.next_token.as_deref(), wanted.limit, key, |info| view(&everything, info))
}

/// Deletes a snapshot, or a template that was built from steps: one of its tags, or all if the request names none.
async fn remove(call: Call<Run>) -> Result<StatusCode, ApiError> {
    let workspace = call.workspace().as_str();
    let tags = names::tags_of_bare(&call.app, workspace, &call.item)?;
    if !tags.is_empty() {
        for tag in tags.into_keys() {
            names::untag(&call.app, workspace, &Name { name: call.item.clone(), tag }).await?;
        }
        return Ok(StatusCode::NO_CONTENT);
    }
    match names::resolve(&call.app, workspace, &call.item)? {
        TemplateSource::Snapshot(info) => call.app.engine.snapshots().delete(workspace, &info.id).await?,
        TemplateSource::Saved { name, .. } => {
            call.app.engine.remove_template(workspace, &name).await?;
        }
        TemplateSource::Template(_) | TemplateSource::Image(_) | TemplateSource::Scratch => {
            return Err(ApiError::not_found("template"));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}
