//! Creates, lists, reads and deletes volumes. [`content`](super::content) handles their files.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use sandling_engine::VolumeView;
use sandling_service::Principal;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::context::RequestContext;
use crate::e2b::token;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

/// E2B's clients do not send a size. Unused space takes no disk space, but counts against the quota.
const SIZE_MIB: u32 = 1024;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/volumes", post(create).get(list)).route("/volumes/{id}", get(look).delete(remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolumeRequest {
    name: String,
}

async fn create(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    body: JsonBody<VolumeRequest>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let place = app.service.sandboxes.reserve_disk(caller.workspace(), SIZE_MIB.into())?;
    let made = app.engine.volumes().create(caller.workspace().as_str(), &body.value.name, SIZE_MIB).await?;
    drop(place);
    context.made(&made.info.name);
    Ok((StatusCode::CREATED, Json(with_token(&app, &caller.principal, &made))))
}

async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<Value>>, ApiError> {
    let own = app.engine.volumes().list(caller.workspace().as_str())?;
    Ok(Json(own.iter().map(view).collect()))
}

/// The response has the token for the volume's files, so reading it needs more than the scope `read`.
async fn look(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(with_token(&app, &caller.principal, &find(&app, caller.workspace().as_str(), &id)?)))
}

async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    let workspace = caller.workspace().as_str();
    let volume = find(&app, workspace, &id)?;
    app.service.sandboxes.release_volume(caller.workspace(), &volume.info.name).await?;
    app.engine.volumes().delete(workspace, &volume.info.name)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Finds a volume by id or name.
pub(super) fn find(app: &App, workspace: &str, id: &str) -> Result<VolumeView, ApiError> {
    let mut own = app.engine.volumes().list(workspace)?.into_iter();
    let found = own.find(|volume| volume.info.id.as_str() == id || volume.info.name == id);
    found.ok_or_else(|| ApiError::not_found("volume"))
}

fn view(volume: &VolumeView) -> Value {
    json!({ "volumeID": volume.info.id, "name": volume.info.name })
}

fn with_token(app: &App, origin: &Principal, volume: &VolumeView) -> Value {
    let mut view = view(volume);
    view["token"] = token::volume(app, origin, volume.info.id.as_str()).into();
    view
}
