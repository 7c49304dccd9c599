//! Creates, lists, reads and deletes volumes. [`content`](super::content) handles their files.

use axum::extract::State;
use axum::routing::{get, post};
use sandling_engine::VolumeView;
use sandling_service::Principal;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::e2b::token;
use crate::prelude::*;

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

async fn create(call: Call<Run>, body: JsonBody<VolumeRequest>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let place = call.app.service.sandboxes.reserve_disk(call.workspace(), SIZE_MIB.into()).await?;
    let made = call.app.engine.volumes().create(call.workspace().as_str(), &body.value.name, SIZE_MIB).await?;
    drop(place);
    call.context.made(&made.info.name);
    Ok((StatusCode::CREATED, Json(with_token(&call.app, &call.caller.principal, &made))))
}

async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<Value>>, ApiError> {
    let own = app.engine.volumes().list(caller.workspace().as_str())?;
    Ok(Json(own.iter().map(view).collect()))
}

/// The response has the token for the volume's files, so reading it needs more than the scope `read`.
async fn look(call: Call<Run>) -> Result<Json<Value>, ApiError> {
    let volume = find(&call.app, call.workspace().as_str(), &call.item)?;
    Ok(Json(with_token(&call.app, &call.caller.principal, &volume)))
}

async fn remove(call: Call<Run>) -> Result<StatusCode, ApiError> {
    let workspace = call.workspace().as_str();
    let volume = find(&call.app, workspace, &call.item)?;
    call.app.service.sandboxes.release_volume(call.workspace(), &volume.info.name).await?;
    call.app.engine.volumes().delete(workspace, &volume.info.name)?;
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
