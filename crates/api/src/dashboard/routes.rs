//! Signing in and out.

use axum::extract::{Extension, State};
use axum::http::header;
use axum::routing::get;
use jiff::Timestamp;
use sandling_wire::MeView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::assets;
use super::session::{self, LINK_LIFETIME, Sessions};
use crate::audit;
use crate::prelude::*;
use crate::preview::host::{self, Origin};
use crate::request_limits::{self, Holder};

/// Where a browser signs in.
pub(super) const SIGN_IN: &str = "/v1/dashboard/session";

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(show, sign_in, sign_out))
        .routes(routes!(link))
        .route("/", get(assets::root))
        .route("/dashboard", get(assets::root))
        .route("/dashboard/", get(assets::page))
        .route("/dashboard/{*path}", get(assets::file))
}

/// Exactly one of the two.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// A token of the API.
    token: Option<String>,
    /// The code of a one-time link.
    code: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct DashboardSession {
    user: MeView,
    /// Changes must send it as `X-Sandling-CSRF`.
    csrf_token: String,
    /// The session ends earlier if its token is revoked or expires.
    expires_at: String,
}

#[derive(Serialize, ToSchema)]
struct DashboardLink {
    /// Opens the dashboard, signed in. It works once.
    url: String,
    expires_at: String,
}

/// Create a one-time link to the dashboard
///
/// The browser that opens it first is signed in with the scope of the caller's token. The link expires after 5 minutes.
#[utoipa::path(post, path = "/v1/dashboard/link", responses((status = 201, body = DashboardLink)))]
async fn link(call: Call<Read>, origin: Origin) -> (StatusCode, Json<DashboardLink>) {
    let code = call.app.dialect_state::<Sessions>().create_link(&call.caller.principal);
    // A browser does not send the part after `#`, so no log contains the code.
    let url = origin.api_url(&format!("/dashboard/#code={code}"));
    let expires_at = (Timestamp::now() + LINK_LIFETIME).to_string();
    (StatusCode::CREATED, Json(DashboardLink { url, expires_at }))
}

/// Sign a browser in
///
/// With a token, or with the code of a one-time link. The response sets a cookie that authenticates further requests of
/// the same browser. The session has the scope of its token and ends with it, at the latest after 12 hours.
#[utoipa::path(
    post, path = "/v1/dashboard/session", request_body = SignIn, security(()),
    responses((status = 201, body = DashboardSession)),
)]
async fn sign_in(
    State(app): State<Arc<App>>,
    Extension(context): Extension<RequestContext>,
    request: axum::extract::Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let request = axum::extract::Request::from_parts(parts.clone(), body);
    let JsonBody { value, .. } =
        <JsonBody<SignIn> as axum::extract::FromRequest<()>>::from_request(request, &()).await?;
    let principal = match (value.token, value.code) {
        (Some(token), None) => app.service.tokens.authenticate(token.trim())?,
        (None, Some(code)) => app.dialect_state::<Sessions>().redeem(&code).ok_or_else(used_link)?,
        _ => return Err(ApiError::bad_request("the body needs either `token` or `code`")),
    };
    context.came_from(&principal);
    request_limits::admit(&app, &parts.extensions, &principal.workspace, Holder::Token(&principal.token_prefix))?;
    audit::begin(&app, &context)?;
    let new = Sessions::begin(&app.service, &principal).ok_or_else(used_link)?;
    let cookie = session::cookie(&new, host::scheme(&parts.extensions));
    let view = DashboardSession {
        user: principal.into_wire(),
        csrf_token: session::csrf_token(&new.secret),
        expires_at: new.expires_at.to_string(),
    };
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(view)).into_response())
}

fn used_link() -> ApiError {
    let message = "this link was used already or has expired; `sandling dashboard` makes another";
    ApiError::new(StatusCode::UNAUTHORIZED, "link_invalid", message)
}

/// Show the session of this browser
#[utoipa::path(get, path = "/v1/dashboard/session", responses((status = 200, body = DashboardSession)))]
async fn show(caller: Caller<Read>, headers: HeaderMap) -> Result<Json<DashboardSession>, ApiError> {
    let secret = session::of(&headers).ok_or_else(|| ApiError::not_found("session"))?;
    Ok(Json(DashboardSession {
        user: caller.principal.into_wire(),
        csrf_token: session::csrf_token(secret),
        expires_at: session::expires_at(secret).unwrap_or_default().to_string(),
    }))
}

/// Sign a browser out
#[utoipa::path(delete, path = "/v1/dashboard/session", responses((status = 204)))]
async fn sign_out(call: Call<Read>, request: axum::extract::Request) -> Response {
    if let Some(secret) = session::of(request.headers()) {
        call.app.dialect_state::<Sessions>().end(secret);
    }
    let cookie = session::no_cookie(host::scheme(request.extensions()));
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}
