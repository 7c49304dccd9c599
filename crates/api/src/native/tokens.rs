//! Tokens: of the caller's own workspace, and for operators those of any.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use sandling_service::{NewToken, Principal, WorkspaceName};
use sandling_wire::{CreateToken, NewTokenView, TokenList};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Admin, Caller, Operator};
use crate::context::RequestContext;
use crate::convert::access::expires_at;
use crate::convert::{IntoEngine, IntoWire};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::native::workspaces::named;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(revoke))
        .routes(routes!(list_of, create_in))
        .routes(routes!(revoke_in))
}

/// List the workspace's tokens
#[utoipa::path(get, path = "/v1/me/tokens", tag = "access", responses((status = 200, body = TokenList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Admin>) -> Result<Json<TokenList>, ApiError> {
    tokens(&app, caller.workspace())
}

/// Make a token
///
/// The answer is the only place where its secret stands. It cannot do more than the one that makes it.
#[utoipa::path(
    post, path = "/v1/me/tokens", tag = "access", request_body = Option<CreateToken>,
    responses((status = 201, body = NewTokenView)),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Extension(context): Extension<RequestContext>,
    body: JsonBody<CreateToken>,
) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    let workspace = caller.workspace().clone();
    make(&app, &caller.principal, workspace, body.value, &context)
}

/// Revoke a token
#[utoipa::path(
    delete, path = "/v1/me/tokens/{prefix}", tag = "access", params(("prefix" = String, Path)),
    responses((status = 204)),
)]
async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(prefix): Parts<String>,
) -> Result<StatusCode, ApiError> {
    app.service.tokens.revoke(caller.workspace(), &prefix)?;
    app.end_unauthorized();
    Ok(StatusCode::NO_CONTENT)
}

/// List a workspace's tokens
#[utoipa::path(
    get, path = "/v1/workspaces/{workspace}/tokens", tag = "access", params(("workspace" = String, Path)),
    responses((status = 200, body = TokenList)),
)]
async fn list_of(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Parts(workspace): Parts<String>,
) -> Result<Json<TokenList>, ApiError> {
    tokens(&app, &named(&app, &workspace)?)
}

/// Make a token for a workspace
#[utoipa::path(
    post, path = "/v1/workspaces/{workspace}/tokens", tag = "access", params(("workspace" = String, Path)),
    request_body = Option<CreateToken>,
    responses((status = 201, body = NewTokenView)),
)]
async fn create_in(
    State(app): State<Arc<App>>,
    caller: Caller<Operator>,
    Extension(context): Extension<RequestContext>,
    Parts(workspace): Parts<String>,
    body: JsonBody<CreateToken>,
) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    let workspace = named(&app, &workspace)?;
    make(&app, &caller.principal, workspace, body.value, &context)
}

/// Revoke a workspace's token
#[utoipa::path(
    delete, path = "/v1/workspaces/{workspace}/tokens/{prefix}", tag = "access",
    params(("workspace" = String, Path), ("prefix" = String, Path)),
    responses((status = 204)),
)]
async fn revoke_in(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Parts((workspace, prefix)): Parts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    app.service.tokens.revoke(&named(&app, &workspace)?, &prefix)?;
    app.end_unauthorized();
    Ok(StatusCode::NO_CONTENT)
}

fn tokens(app: &App, workspace: &WorkspaceName) -> Result<Json<TokenList>, ApiError> {
    let tokens = app.service.tokens.list(workspace)?;
    Ok(Json(TokenList { items: tokens.into_iter().map(IntoWire::into_wire).collect() }))
}

fn make(
    app: &App,
    maker: &Principal,
    workspace: WorkspaceName,
    request: CreateToken,
    context: &RequestContext,
) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    let scope = request.scope.map_or(maker.scope, IntoEngine::into_engine);
    maker.require_grant(&workspace, scope)?;
    let expires_at = expires_at(&request)?;
    let new = NewToken { workspace, name: request.into_name(), scope, expires_at };
    let created = app.service.tokens.create(&new)?;
    context.made(&created.info.prefix);
    Ok((StatusCode::CREATED, Json(created.into_wire())))
}
