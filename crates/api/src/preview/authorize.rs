//! Authorizes preview requests, and removes credentials before they reach the sandbox.
//!
//! A preview token is in the query, in a header, or in the cookie that the first visit sets. An API token with the
//! scope `run` opens all previews of its workspace. Neither is forwarded, because code in the sandbox could steal it.
//! The page's own credentials, e.g. an `Authorization` header, are forwarded.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use sandling_engine::{Sandbox, SandboxId};
use sandling_service::{AuthError, PreviewToken, Scope, WorkspaceName};

use crate::app::App;
use crate::auth::{API_KEY, bearer_of, presented, query_value};
use crate::error::ApiError;
use crate::preview::host;
use crate::request_limits::{self, Holder};

const QUERY: &str = "sandling_token";
const COOKIE: &str = "sandling_preview";
const HEADER: HeaderName = HeaderName::from_static("x-sandling-preview-token");

/// An authorized request.
pub(crate) struct Passed {
    pub(crate) sandbox: Arc<Sandbox>,
    /// Set in the browser, so that the page's further requests are authorized.
    pub(crate) cookie: Option<HeaderValue>,
}

/// Authorizes a request to a port of a sandbox, and removes the token from it.
pub(crate) async fn pass(
    app: &App,
    parts: &mut Parts,
    id: &SandboxId,
    port: u16,
    path: &str,
) -> Result<Passed, ApiError> {
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
            count_preview(app, parts, &token)?;
            token.workspace
        }
        None => by_api_token(app, parts)?,
    };
    take_out_ours(app, parts);
    let sandbox = app.engine.find(&workspace, id).await.ok_or_else(|| ApiError::not_found("sandbox"))?;
    Ok(Passed { sandbox, cookie })
}

fn by_api_token(app: &App, parts: &Parts) -> Result<String, ApiError> {
    let principal = app.service.tokens.authenticate(&presented(parts))?;
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

/// Removes Sandling's credentials from a request before it goes to the sandbox.
pub(crate) fn take_out_ours(app: &App, parts: &mut Parts) {
    // This includes revoked and expired tokens, which still reveal their owner.
    take_out(parts, |token| {
        !matches!(app.service.tokens.authenticate(token), Err(AuthError::Missing | AuthError::Malformed))
    });
}

fn take_out(parts: &mut Parts, is_ours: impl Fn(&str) -> bool) {
    parts.headers.remove(HEADER);
    let token_in = |value: &HeaderValue, read: fn(&str) -> Option<String>| {
        value.to_str().ok().and_then(read).is_some_and(|token| is_ours(&token))
    };
    let bearer = |value: &HeaderValue| token_in(value, |text| bearer_of(text).map(str::to_owned));
    keep_others(&mut parts.headers, &header::AUTHORIZATION, bearer);
    keep_others(&mut parts.headers, &API_KEY, |value| token_in(value, |text| Some(text.to_owned())));
    // The referring URL can contain a token in its query or path.
    keep_others(&mut parts.headers, &header::REFERER, |value| {
        [QUERY, "access_token", "/v1/p/"]
            .iter()
            .any(|ours| value.as_bytes().windows(ours.len()).any(|window| window == ours.as_bytes()))
    });
    let others: Vec<_> = cookies(&parts.headers).filter(|pair| !pair.starts_with(&format!("{COOKIE}="))).collect();
    let others = others.join("; ");
    parts.headers.remove(header::COOKIE);
    if !others.is_empty()
        && let Ok(value) = others.parse()
    {
        parts.headers.insert(header::COOKIE, value);
    }
    if let Some(query) = parts.uri.query() {
        let ours = |pair: &&str| match pair.split('=').next() {
            Some(QUERY) => true,
            Some("access_token") => is_ours(&query_value(Some(pair), "access_token")),
            _ => false,
        };
        let kept: Vec<_> = query.split('&').filter(|pair| !ours(pair)).collect();
        let path = parts.uri.path();
        let rest = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
        parts.uri = rest.parse::<Uri>().unwrap_or_else(|_| parts.uri.clone());
    }
}

/// Removes a header's values that contain Sandling's credentials.
fn keep_others(headers: &mut HeaderMap, name: &HeaderName, is_ours: impl Fn(&HeaderValue) -> bool) {
    let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
    headers.remove(name);
    for value in values.into_iter().filter(|value| !is_ours(value)) {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use sandling_wire::native_token;

    use super::*;

    fn without_ours(request: axum::http::request::Builder) -> Parts {
        let mut parts = request.body(()).unwrap().into_parts().0;
        take_out(&mut parts, |token| token == "abc" || native_token(token).as_deref() == Some("abc"));
        parts
    }

    #[test]
    fn nothing_of_ours_reaches_the_sandbox() {
        let request = Request::get("/a?x=1&sandling_token=abc&y=2&access_token=a%62c")
            .header("cookie", "theirs=1; sandling_preview=abc; more=2")
            .header("x-sandling-preview-token", "abc")
            .header("authorization", "Bearer abc")
            .header("x-api-key", "abc")
            .header("x-api-key", "e2b_616263")
            .header("referer", "http://80-x.localhost/?sandling_token=abc");
        assert_eq!(cookie_token(request.headers_ref().unwrap()), "abc");
        let parts = without_ours(request);
        assert_eq!(parts.uri, "/a?x=1&y=2");
        assert_eq!(parts.headers.get("cookie").unwrap(), "theirs=1; more=2");
        let left = format!("{parts:?}");
        assert!(!left.contains("abc") && !left.contains("616263"), "{left}");
    }

    #[test]
    fn what_a_page_has_of_its_own_reaches_it() {
        let request = Request::get("/a?access_token=xyz")
            .header("authorization", "Bearer xyz")
            .header("authorization", "Basic YWJj")
            .header("x-api-key", "e2b_78797a")
            .header("referer", "http://80-x.localhost/a");
        let parts = without_ours(request);
        assert_eq!(parts.uri, "/a?access_token=xyz");
        assert_eq!(parts.headers.get_all("authorization").iter().count(), 2);
        assert!(parts.headers.contains_key("x-api-key") && parts.headers.contains_key("referer"));
    }

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
