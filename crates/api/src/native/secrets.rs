//! Secrets of a workspace, which sandboxes can use but not see.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_wire::{SecretList, SecretView, SetSecret};
use utoipa_axum::{router::OpenApiRouter, routes};
use zeroize::Zeroizing;

use crate::app::App;
use crate::auth::{Admin, Caller, Read};
use crate::convert::IntoWire;
use crate::convert::secrets::hosts;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, remove))
}

/// List the workspace's secrets
///
/// Names and hosts. No response contains a value.
#[utoipa::path(get, path = "/v1/secrets", tag = "network", responses((status = 200, body = SecretList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<SecretList>, ApiError> {
    let secrets = app.engine.networks().secrets(caller.workspace().as_str())?;
    Ok(Json(SecretList { secrets: secrets.into_iter().map(IntoWire::into_wire).collect() }))
}

/// Store a secret
///
/// The value is encrypted and bound to hosts. A sandbox with the secret sees a placeholder in an environment variable
/// of the same name. The gateway inserts the value into headers and queries of HTTPS requests to those hosts. Storing
/// an existing name replaces the value at once, also for running sandboxes. After a removal, it must be attached again.
#[utoipa::path(
    put, path = "/v1/secrets/{name}", tag = "network", params(("name" = String, Path)),
    request_body = SetSecret, responses((status = 200, body = SecretView)),
)]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(name): Parts<String>,
    body: JsonBody<SetSecret>,
) -> Result<Json<SecretView>, ApiError> {
    let hosts = hosts(&body.value)?;
    let value = Zeroizing::new(body.value.value);
    Ok(Json(app.engine.networks().set_secret(caller.workspace().as_str(), &name, value, hosts)?.into_wire()))
}

/// Remove a secret
///
/// No sandbox can use it after the response, and connections that used it are reset. A later secret with the same name
/// is a new one.
#[utoipa::path(
    delete, path = "/v1/secrets/{name}", tag = "network", params(("name" = String, Path)),
    responses((status = 204)),
)]
async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(name): Parts<String>,
) -> Result<StatusCode, ApiError> {
    match app.engine.networks().remove_secret(caller.workspace().as_str(), &name)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found("secret")),
    }
}
