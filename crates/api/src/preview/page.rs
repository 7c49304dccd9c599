//! Errors of previews: a page for a browser, JSON for programs.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};

use crate::error::{ApiError, Shape};

const PAGE: Shape = Shape { body: |error| error.body(""), render: page };

/// Gives an error the form that the client reads.
#[derive(Clone, Copy)]
pub(crate) struct ErrorForm {
    is_page: bool,
}

impl ErrorForm {
    /// A browser that opens a page asks for HTML. Scripts and command-line tools do not.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
        let is_html =
            |range: &str| range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/html");
        Self { is_page: accepted.split(',').any(is_html) }
    }

    pub(crate) fn apply(self, mut error: ApiError) -> ApiError {
        if self.is_page {
            error.shape = Some(PAGE);
        }
        error
    }
}

fn page(error: &ApiError) -> Response {
    let (title, hint) = match error.code {
        "nothing_listens" => {
            ("Nothing answers here yet", "Start the server in the sandbox, let it listen on this port, and reload.")
        }
        "bad_server" => ("The server gave no answer", "The program on this port does not speak HTTP."),
        "preview_token_invalid" | "unauthorized" | "token_missing" => {
            ("This link does not work", "It may have expired or been revoked. Ask for a new link.")
        }
        "not_found" | "sandbox_ended" => ("This sandbox does not exist", "It may have ended. Ask for a new link."),
        "sandbox_gone" => ("This sandbox is not running", "It may have ended or be paused. Ask for a new link."),
        _ => ("This page cannot be shown", ""),
    };
    let message = escaped(&error.message);
    let status = error.status.as_u16();
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36em;\
         margin:15vh auto;padding:0 1em;color:#222;background:#fff}}small{{color:#777}}@media(prefers-color-scheme:dark)\
         {{body{{color:#ddd;background:#181818}}}}</style><h1>{title}</h1><p>{message}</p><p>{hint}</p>\
         <small>Sandling, {status} {}</small></html>",
        error.code
    );
    let mut response = (error.status, Html(html)).into_response();
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    fn rendered(accept: &str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let error = ApiError::new(StatusCode::BAD_GATEWAY, "nothing_listens", "nothing <listens> on port 3000");
        ErrorForm::of(&headers).apply(error).render("id")
    }

    #[tokio::test]
    async fn a_browser_gets_a_page_and_a_program_gets_json() {
        let page = rendered("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
        assert_eq!(page.status(), StatusCode::BAD_GATEWAY);
        assert!(page.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/html"));
        let text = axum::body::to_bytes(page.into_body(), 10_000).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains("nothing &lt;listens&gt; on port 3000") && text.contains("reload"), "{text}");
        for accept in ["*/*", "application/json", "text/event-stream", "image/avif,*/*"] {
            let json = rendered(accept);
            assert_eq!(json.headers()[header::CONTENT_TYPE], "application/json", "{accept}");
        }
    }
}
