//! Requests that a browser sends with the cookie of a session.
//!
//! A browser also sends the cookie when a page of another origin makes the request. `SameSite=Strict` covers other sites,
//! but servers on other ports of the same host are the same site. So this layer checks the origin of every request, and
//! changes need the CSRF token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::routes::SIGN_IN;
use super::session::{self, Sessions};
use crate::app::App;
use crate::auth::{SignedIn, presented};
use crate::error::ApiError;
use crate::preview::host;

const CSRF: HeaderName = HeaderName::from_static("x-sandling-csrf");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Signs a request in if it has a session and no token of its own.
pub(crate) async fn gate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let is_preview = host::parse(host::of(&parts.headers)).is_some();
    let has_token = !presented(&parts).is_empty();
    let secret = session::of(&parts.headers).filter(|_| !is_preview && !has_token).map(str::to_owned);
    let session = secret.and_then(|secret| {
        let principal = app.dialect_state::<Sessions>().check(&app.service, &secret)?;
        Some((secret, principal))
    });
    let Some((secret, principal)) = session else { return next.run(Request::from_parts(parts, body)).await };
    if let Err(error) = check_origin(&parts, &session::csrf_token(&secret)) {
        return error.into_response();
    }
    let is_dashboard = parts.uri.path().starts_with("/dashboard");
    parts.extensions.insert(SignedIn(principal));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if !is_dashboard {
        never_interpret(response.headers_mut());
    }
    response
}

fn check_origin(parts: &Parts, csrf_token: &str) -> Result<(), ApiError> {
    let headers = &parts.headers;
    let foreign =
        || ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", "a page of another origin may not use this session");
    let site = headers.get(FETCH_SITE).and_then(|site| site.to_str().ok());
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(foreign());
    }
    let is_read = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_socket = headers.contains_key(header::UPGRADE);
    if headers.contains_key(header::ORIGIN) || is_socket {
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, authority)| authority).unwrap_or_default();
        if authority.is_empty() || authority != host::of(headers) {
            return Err(foreign());
        }
    }
    // Signing in again must work without the CSRF token of the present session.
    let signs_in = parts.method == Method::POST && parts.uri.path() == SIGN_IN;
    let sent = headers.get(CSRF).and_then(|value| value.to_str().ok());
    if !is_read && !signs_in && sent != Some(csrf_token) {
        let message = "the request lacks the session's CSRF token; reload the dashboard";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "csrf", message));
    }
    Ok(())
}

/// A browser that opens an API's response as a page must not run anything in it: files and output come from guests.
fn never_interpret(headers: &mut HeaderMap) {
    headers.append(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn code(request: axum::http::request::Builder) -> Option<&'static str> {
        let parts = request.header("host", "127.0.0.1:8080").body(()).unwrap().into_parts().0;
        check_origin(&parts, "token").err().map(|error| error.code)
    }

    #[test]
    fn a_change_needs_the_csrf_token() {
        assert_eq!(code(Request::post("/v1/sandboxes")), Some("csrf"));
        assert_eq!(code(Request::post("/v1/sandboxes").header(CSRF, "other")), Some("csrf"));
        assert_eq!(code(Request::delete("/v1/sandboxes/x").header(CSRF, "token")), None);
        assert_eq!(code(Request::get("/v1/sandboxes")), None);
        assert_eq!(code(Request::post(SIGN_IN)), None);
    }

    #[test]
    fn another_origin_is_refused_even_on_the_same_host() {
        let (own, other) = ("http://127.0.0.1:8080", "http://127.0.0.1:3000");
        let change = |origin| Request::post("/v1/sandboxes").header(CSRF, "token").header("origin", origin);
        assert_eq!(code(change(own)), None);
        assert_eq!(code(change(other)), Some("foreign_origin"));
        assert_eq!(code(change("null")), Some("foreign_origin"));
        let read = |site| Request::get("/v1/sandboxes").header(FETCH_SITE, site);
        assert_eq!(code(read("same-origin")), None);
        assert_eq!(code(read("none")), None, "an address that the user typed");
        assert_eq!(code(read("same-site")), Some("foreign_origin"));
        assert_eq!(code(read("cross-site")), Some("foreign_origin"));
    }

    #[test]
    fn a_socket_must_name_its_origin() {
        let socket = || Request::get("/v1/sandboxes/x/exec/pty").header("upgrade", "websocket");
        assert_eq!(code(socket()), Some("foreign_origin"));
        assert_eq!(code(socket().header("origin", "http://127.0.0.1:8080")), None);
        assert_eq!(code(socket().header("origin", "http://evil.example")), Some("foreign_origin"));
    }
}
