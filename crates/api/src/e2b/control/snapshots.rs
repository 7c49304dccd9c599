//! Snapshots. Sandboxes can be created from them as from templates.

use axum::routing::{delete, get, post};
use sandling_engine::{Kept, SnapshotInfo, State as SandboxState};
use sandling_service::TemplateSource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use super::list::{Key, Order, paged};
use crate::e2b::names::{self, Name};
use crate::e2b::place::parse_id;
use crate::e2b::refusal::unsupported;
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
    if body.value.memory == Some(false) {
        return Err(unsupported("a snapshot keeps memory here; leave `memory: false` out"));
    }
    let name = body.value.name.filter(|name| !name.is_empty());
    if let Some(name) = &name {
        Name::parse(name)?;
    }
    let place = call.app.service.sandboxes.reserve_snapshot(call.workspace(), &call.sandbox)?;
    let info = call.sandbox.info();
    let slept = info.state == SandboxState::Hibernated;
    if slept {
        call.sandbox.wake().await?;
    }
    let saved = call.app.engine.snapshot(&call.sandbox, name, None).await;
    drop(place);
    if slept {
        // The sandbox was hibernated before, and the call.caller did not ask to wake it.
        let kept = if info.sleeps_without_memory() { Kept::Disk } else { Kept::Everything };
        call.sandbox.hibernate_keeping(kept).await?;
    }
    Ok((StatusCode::CREATED, Json(view(&saved?.0))))
}

fn view(info: &SnapshotInfo) -> Value {
    json!({ "snapshotID": info.id, "names": info.name.iter().collect::<Vec<_>>() })
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
    let mut all = call.app.engine.snapshots().list(call.workspace().as_str())?;
    all.retain(|info| Name::from_snapshot(info).is_none());
    if let Some(id) = wanted.sandbox_id.filter(|id| !id.is_empty()) {
        let id = parse_id(&id);
        all.retain(|info| Some(&info.sandbox) == id.as_ref());
    }
    if let Some(name) = wanted.name.filter(|name| !name.is_empty()) {
        let wanted = Name::parse(&name).ok();
        let own = |info: &SnapshotInfo| info.name.as_deref().and_then(|name| Name::parse(name).ok());
        all.retain(|info| info.id.as_str() == name || wanted.is_some() && own(info) == wanted);
    }
    let key = |info: &SnapshotInfo| Key::new(info.created_at, &info.id);
    paged(all, Order::NewestFirst, wanted.next_token.as_deref(), wanted.limit, key, view)
}

/// Deletes a snapshot, or a template that was built from steps.
async fn remove(call: Call<Run>) -> Result<StatusCode, ApiError> {
    let workspace = call.workspace().as_str();
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
