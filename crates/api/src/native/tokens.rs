//! Tokens: of the caller's own workspace, and for operators those of any.

use axum::extract::State;
use sandling_service::{NewToken, WorkspaceName};
use sandling_wire::{CreateToken, NewTokenView, TokenList, native_prefix};

use crate::convert::access::{expires_at, new_token_view, token_view};
use crate::native::workspaces::named;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(revoke))
        .routes(routes!(list_of, create_in))
        .routes(routes!(revoke_in))
}

/// List the workspace's tokens
#[utoipa::path(get, path = "/v1/me/tokens", responses((status = 200, body = TokenList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Admin>) -> Result<Json<TokenList>, ApiError> {
    tokens(&app, &caller, caller.workspace())
}

/// Make a token
///
/// The answer is the only place where its secret stands. It cannot do more than the one that makes it.
#[utoipa::path(
    post, path = "/v1/me/tokens", request_body = Option<CreateToken>, responses((status = 201, body = NewTokenView)),
)]
async fn create(call: Call<Admin>, body: JsonBody<CreateToken>) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    make(&call.app, &call.caller, call.workspace().clone(), body.value, &call.context)
}

/// Revoke a token
#[utoipa::path(delete, path = "/v1/me/tokens/{prefix}", responses((status = 204)))]
async fn revoke(call: Call<Admin>) -> Result<StatusCode, ApiError> {
    call.app.service.tokens.revoke(call.workspace(), &native_prefix(&call.item))?;
    call.app.end_unauthorized();
    Ok(StatusCode::NO_CONTENT)
}

/// List a workspace's tokens
#[utoipa::path(get, path = "/v1/workspaces/{workspace}/tokens", responses((status = 200, body = TokenList)))]
async fn list_of(call: Call<Operator>) -> Result<Json<TokenList>, ApiError> {
    tokens(&call.app, &call.caller, &named(&call.app, &call.item)?)
}

/// Make a token for a workspace
#[utoipa::path(
    post, path = "/v1/workspaces/{workspace}/tokens", request_body = Option<CreateToken>,
    responses((status = 201, body = NewTokenView)),
)]
async fn create_in(
    call: Call<Operator>,
    body: JsonBody<CreateToken>,
) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    make(&call.app, &call.caller, named(&call.app, &call.item)?, body.value, &call.context)
}

/// Revoke a workspace's token
#[utoipa::path(delete, path = "/v1/workspaces/{workspace}/tokens/{prefix}", responses((status = 204)))]
async fn revoke_in(
    State(app): State<Arc<App>>,
    _: Caller<Operator>,
    Parts((workspace, prefix)): Parts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    app.service.tokens.revoke(&named(&app, &workspace)?, &native_prefix(&prefix))?;
    app.end_unauthorized();
    Ok(StatusCode::NO_CONTENT)
}

fn tokens<N>(app: &App, caller: &Caller<N>, workspace: &WorkspaceName) -> Result<Json<TokenList>, ApiError> {
    let tokens = app.service.tokens.list(workspace)?;
    Ok(Json(TokenList { items: tokens.into_iter().map(|info| token_view(info, caller.dialect)).collect() }))
}

/// A new token has the form of the token that makes it.
fn make<N>(
    app: &App,
    caller: &Caller<N>,
    workspace: WorkspaceName,
    request: CreateToken,
    context: &RequestContext,
) -> Result<(StatusCode, Json<NewTokenView>), ApiError> {
    let scope = request.scope.map_or(caller.principal.scope, IntoEngine::into_engine);
    caller.principal.require_grant(&workspace, scope)?;
    let expires_at = expires_at(&request)?;
    let new = NewToken { workspace, name: request.into_name(), scope, expires_at };
    let created = app.service.tokens.create(&new)?;
    context.made(&created.info.prefix);
    Ok((StatusCode::CREATED, Json(new_token_view(created, caller.dialect))))
}
