//! Secrets of a workspace, which sandboxes can use but not see.

use axum::extract::State;
use sandling_wire::{SecretList, SecretView, SetSecret};
use zeroize::Zeroizing;

use crate::convert::secrets::{hosts, placements};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, remove))
}

/// List the workspace's secrets
///
/// Names, hosts and placements. No response contains a value.
#[utoipa::path(get, path = "/v1/secrets", responses((status = 200, body = SecretList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<SecretList>, ApiError> {
    let secrets = app.engine.networks().secrets(caller.workspace().as_str())?;
    Ok(Json(SecretList { secrets: secrets.into_wire() }))
}

/// Store a secret
///
/// The value is encrypted and bound to hosts. A sandbox with the secret sees a placeholder in an environment variable
/// of the same name. In HTTPS requests to those hosts, the gateway replaces the placeholder by the value at the secret's
/// `placements`, and refuses requests that have it elsewhere. Storing an existing name replaces value, hosts and
/// placements at once, also for running sandboxes. After a removal, it must be attached again.
#[utoipa::path(
    put, path = "/v1/secrets/{name}", request_body = SetSecret, responses((status = 200, body = SecretView)),
)]
async fn set(call: Call<Admin>, body: JsonBody<SetSecret>) -> Result<Json<SecretView>, ApiError> {
    let (hosts, placements) = (hosts(&body.value)?, placements(&body.value)?);
    let value = Zeroizing::new(body.value.value);
    let (networks, workspace) = (call.app.engine.networks(), call.workspace().as_str());
    Ok(Json(networks.set_secret(workspace, &call.item, value, hosts, placements)?.into_wire()))
}

/// Remove a secret
///
/// No sandbox can use it after the response, and connections that used it are reset. A later secret with the same name
/// is a new one.
#[utoipa::path(delete, path = "/v1/secrets/{name}", responses((status = 204)))]
async fn remove(call: Call<Admin>) -> Result<StatusCode, ApiError> {
    match call.app.engine.networks().remove_secret(call.workspace().as_str(), &call.item)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found("secret")),
    }
}
