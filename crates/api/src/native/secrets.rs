//! Secrets of a workspace: what sandboxes can use and never see.

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
/// Their names and hosts. No request answers with a value.
#[utoipa::path(get, path = "/v1/secrets", tag = "network", responses((status = 200, body = SecretList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<SecretList>, ApiError> {
    let secrets = app.engine.secrets(caller.workspace().as_str())?;
    Ok(Json(SecretList { secrets: secrets.into_iter().map(IntoWire::into_wire).collect() }))
}

/// Store a secret
///
/// Encrypted, and bound to hosts. Sandboxes that are given it hold a placeholder, in a variable of its name; the
/// gateway puts the value into the headers and the query of their HTTPS requests to those hosts. One that is there is
/// replaced, at once and for sandboxes that have it. After a removal no sandbox has it until it is given anew.
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
    Ok(Json(app.engine.set_secret(caller.workspace().as_str(), &name, value, hosts)?.into_wire()))
}

/// Remove a secret
///
/// No sandbox can use it any more when the answer comes; connections that had it are reset. One that is stored by its
/// name later is another.
#[utoipa::path(
    delete, path = "/v1/secrets/{name}", tag = "network", params(("name" = String, Path)),
    responses((status = 204)),
)]
async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(name): Parts<String>,
) -> Result<StatusCode, ApiError> {
    match app.engine.remove_secret(caller.workspace().as_str(), &name)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found("secret")),
    }
}
