//! Authorizes preview requests.
//!
//! A preview token is in the query, in a header, or in the cookie that the first visit sets. An API token with the
//! scope `run` opens all previews of its workspace.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use sandling_engine::{Sandbox, SandboxId};
use sandling_service::{PreviewToken, Scope, WorkspaceName};

use crate::app::App;
use crate::auth::{presented, query_value};
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::preview::credentials::{COOKIE, HEADER, QUERY};
use crate::preview::host;
use crate::request_limits::{self, Holder};

/// An authorized request.
pub(crate) struct Authorized {
    pub(crate) sandbox: Arc<Sandbox>,
    /// Set in the browser, so that the page's further requests are authorized.
    pub(crate) cookie: Option<HeaderValue>,
}

/// Authorizes a request to a port of a sandbox, and removes the token from it.
pub(crate) async fn authorize(
    app: &App,
    parts: &Parts,
    id: &SandboxId,
    port: u16,
    path: &str,
) -> Result<Authorized, ApiError> {
    let signed = [query_value(parts.uri.query(), QUERY), header_token(&parts.headers), cookie_token(&parts.headers)];
    let [by_query, by_header, by_cookie] =
        signed.map(|text| app.service.previews.check(&text).map(|token| (text, token)));
    let from_elsewhere = by_query.is_none() && by_header.is_none() && is_foreign_socket(&parts.headers);
    if by_cookie.is_some() && from_elsewhere {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", "another site may not open this socket"));
    }
    let scheme = host::scheme(&parts.extensions);
    let cookie = by_query.as_ref().and_then(|(signed, token)| cookie(signed, token, scheme));
    let mut tokens = [by_query, by_header, by_cookie].into_iter().flatten().map(|(_, token)| token);
    let workspace = match tokens.find(|token| token.allows(id.as_str(), port, path)) {
        Some(token) => {
            if let Some(context) = parts.extensions.get::<RequestContext>() {
                context.came_with_preview(&token);
            }
            count_preview(app, parts, &token)?;
            token.workspace
        }
        None => by_api_token(app, parts)?,
    };
    let sandbox = app.engine.find(&workspace, id).await.ok_or_else(|| ApiError::not_found("sandbox"))?;
    Ok(Authorized { sandbox, cookie })
}

fn by_api_token(app: &App, parts: &Parts) -> Result<String, ApiError> {
    let principal = app.service.tokens.authenticate(&presented(parts))?;
    if let Some(context) = parts.extensions.get::<RequestContext>() {
        context.came_from(&principal);
    }
    principal.require(Scope::Run)?;
    request_limits::admit(app, &parts.extensions, &principal.workspace, Holder::Token(&principal.token_prefix))?;
    Ok(principal.workspace.to_string())
}

/// Counts a request with a preview token against the limits of that token.
pub(crate) fn count_preview(app: &App, parts: &Parts, token: &PreviewToken) -> Result<(), ApiError> {
    match WorkspaceName::parse(&token.workspace) {
        Some(workspace) => request_limits::admit(app, &parts.extensions, &workspace, Holder::Preview(&token.id)),
        None => Ok(()),
    }
}

/// Whether a page of another site opens a WebSocket. The browser would send this site's cookie with it.
fn is_foreign_socket(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let authority = |origin: &str| origin.split_once("://").map(|(_, host)| host.to_owned());
    headers.contains_key(header::UPGRADE) && origin.is_some_and(|o| authority(o).as_deref() != Some(host::of(headers)))
}

fn header_token(headers: &HeaderMap) -> String {
    headers.get(HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn cookie_token(headers: &HeaderMap) -> String {
    let mine = cookies(headers).find_map(|pair| pair.strip_prefix(COOKIE)?.strip_prefix('='));
    mine.unwrap_or_default().to_owned()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(';')).map(str::trim)
}

fn cookie(signed: &str, token: &PreviewToken, scheme: &str) -> Option<HeaderValue> {
    let left = (token.expires_unix - Timestamp::now().as_second()).max(0);
    let secure = if scheme == "https" { "; Secure" } else { "" };
    format!("{COOKIE}={signed}; Path=/; HttpOnly; SameSite=Lax; Max-Age={left}{secure}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_of_another_site_is_foreign() {
        let foreign = |origin: &str, upgrade: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "80-x.localhost:8080".parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            if upgrade {
                headers.insert(header::UPGRADE, "websocket".parse().unwrap());
            }
            is_foreign_socket(&headers)
        };
        assert!(!foreign("http://80-x.localhost:8080", true));
        assert!(foreign("http://evil.example", true));
        assert!(foreign("null", true));
        assert!(!foreign("http://evil.example", false));
    }
}
