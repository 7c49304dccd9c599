//! CORS: a page of any origin may use a sandbox if it has the sandbox's token.
//!
//! These routes do not use cookies, so a page gains no access beyond the token that its author gave it.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The routes of a sandbox's processes, files and interpreters.
const SHARED: [&str; 9] = [
    "/files",
    "/health",
    "/metrics",
    "/envs",
    "/init",
    "/execute",
    "/contexts",
    "/process.Process",
    "/filesystem.Filesystem",
];
const DAY: &str = "86400";

/// The answer to a CORS preflight request.
pub(super) fn preflight(method: &Method, headers: &HeaderMap, path: &str) -> Option<Response> {
    let path = path.strip_prefix('/').filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let below = |own: &str| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let asks = method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks || !SHARED.into_iter().any(below) {
        return None;
    }
    let named = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = StatusCode::NO_CONTENT.into_response();
    let all = HeaderValue::from_static("*");
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE")),
        // `*` does not cover `Authorization`, so the answer repeats the headers that the browser asks for.
        (header::ACCESS_CONTROL_ALLOW_HEADERS, named.unwrap_or_else(|| all.clone())),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(DAY)),
    ] {
        response.headers_mut().insert(name, value);
    }
    Some(share(response))
}

/// Lets pages of any origin read a response.
pub(super) fn share(mut response: Response) -> Response {
    for name in [header::ACCESS_CONTROL_ALLOW_ORIGIN, header::ACCESS_CONTROL_EXPOSE_HEADERS] {
        response.headers_mut().insert(name, HeaderValue::from_static("*"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str) -> Option<Response> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        headers.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("x-access-token"));
        preflight(&Method::OPTIONS, &headers, path)
    }

    #[test]
    fn a_page_may_use_a_sandbox_and_nothing_else() {
        for path in ["/files", "/process.Process/Start", "//execute", "/contexts/a/restart"] {
            let answer = asked(path).unwrap();
            assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
            assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS], "x-access-token");
        }
        for path in ["/v1/sandboxes", "/sandboxes", "/filesx", "/"] {
            assert!(asked(path).is_none(), "{path}");
        }
        assert!(preflight(&Method::OPTIONS, &HeaderMap::new(), "/files").is_none());
    }
}
