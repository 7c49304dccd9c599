//! The dashboard's sessions and pages.

use serde_json::{Value, json};

use crate::harness::{Answer, Server, TOKEN};

/// A request as a browser sends it: with the cookie, and what else the page adds.
async fn browse(server: &Server, method: &str, path: &str, cookie: &str, more: &str, body: Option<Value>) -> Answer {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncookie: other=1; {cookie}\r\n{more}{kind}content-length: {length}\r\n\r\n"
    );
    server.say(format!("{head}{body}").as_bytes()).await
}

struct Browser {
    cookie: String,
    csrf: String,
}

async fn sign_in(server: &Server, credential: Value) -> Browser {
    let answer = server.call(None, "POST", "/v1/dashboard/session", Some(credential)).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    let set = answer.header("set-cookie").unwrap();
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=4"] {
        assert!(set.contains(flag), "{set}");
    }
    let cookie = set.split(';').next().unwrap().to_owned();
    Browser { cookie, csrf: answer.json()["csrf_token"].as_str().unwrap().to_owned() }
}

async fn token(server: &Server, scope: &str) -> (String, String) {
    let made = server.post("/v1/me/tokens", json!({ "name": "person", "scope": scope })).await.json();
    (made["token"].as_str().unwrap().to_owned(), made["prefix"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_session_has_the_scope_of_its_token_and_ends_with_it() {
    let server = Server::start().await;
    let (secret, prefix) = token(&server, "read").await;
    let browser = sign_in(&server, json!({ "token": secret })).await;
    let shown = browse(&server, "GET", "/v1/dashboard/session", &browser.cookie, "", None).await;
    assert_eq!(shown.status, 200);
    assert_eq!(
        (shown.json()["user"]["scope"].as_str(), shown.json()["csrf_token"].as_str()),
        (Some("read"), Some(&*browser.csrf))
    );
    assert_eq!(browse(&server, "GET", "/v1/sandboxes", &browser.cookie, "", None).await.status, 200);
    let csrf = format!("x-sandling-csrf: {}\r\n", browser.csrf);
    let refused = browse(&server, "POST", "/v1/volumes", &browser.cookie, &csrf, Some(json!({ "name": "v" }))).await;
    assert_eq!(refused.refusal().0, 403, "the scope is too small");
    assert_eq!(server.call(Some(TOKEN), "DELETE", &format!("/v1/me/tokens/{prefix}"), None).await.status, 204);
    let over = browse(&server, "GET", "/v1/sandboxes", &browser.cookie, "", None).await;
    assert_eq!(over.refusal(), (401, "token_missing".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_change_needs_the_csrf_token_and_the_same_origin() {
    let server = Server::start().await;
    let browser = sign_in(&server, json!({ "token": TOKEN })).await;
    let body = || Some(json!({ "name": "v", "size_mb": 16 }));
    let csrf = format!("x-sandling-csrf: {}\r\n", browser.csrf);
    let change = async |more: &str| browse(&server, "POST", "/v1/volumes", &browser.cookie, more, body()).await;
    assert_eq!(change("").await.refusal(), (403, "csrf".to_owned()));
    assert_eq!(change("x-sandling-csrf: 00\r\n").await.refusal(), (403, "csrf".to_owned()));
    let foreign = format!("{csrf}origin: http://test:3000\r\n");
    assert_eq!(change(&foreign).await.refusal(), (403, "foreign_origin".to_owned()));
    let own = format!("{csrf}origin: http://test\r\n");
    assert_eq!(change(&own).await.status, 201);
    let read = browse(&server, "GET", "/v1/volumes", &browser.cookie, "sec-fetch-site: same-site\r\n", None).await;
    assert_eq!(read.refusal(), (403, "foreign_origin".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let server = Server::start().await;
    let link = server.post("/v1/dashboard/link", json!({})).await;
    assert_eq!(link.status, 201);
    let url = link.json()["url"].as_str().unwrap().to_owned();
    let code = url.strip_prefix("http://test/dashboard/#code=").unwrap();
    sign_in(&server, json!({ "code": code })).await;
    let again = server.call(None, "POST", "/v1/dashboard/session", Some(json!({ "code": code }))).await;
    assert_eq!(again.refusal(), (401, "link_invalid".to_owned()));
    let none = server.call(None, "POST", "/v1/dashboard/session", Some(json!({}))).await;
    assert_eq!(none.refusal().0, 400);
    let wrong = server.call(None, "POST", "/v1/dashboard/session", Some(json!({ "token": "x" }))).await;
    assert_eq!(wrong.refusal(), (401, "token_malformed".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn signing_out_ends_the_session_on_the_server() {
    let server = Server::start().await;
    let browser = sign_in(&server, json!({ "token": TOKEN })).await;
    let csrf = format!("x-sandling-csrf: {}\r\n", browser.csrf);
    let out = browse(&server, "DELETE", "/v1/dashboard/session", &browser.cookie, &csrf, None).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    let after = browse(&server, "GET", "/v1/me", &browser.cookie, "", None).await;
    assert_eq!(after.refusal().0, 401, "a stolen cookie does not work either");
    let log = server.get("/v1/audit").await.json().to_string();
    assert!(log.contains("dashboard.sign_in") && log.contains("dashboard.sign_out"), "{log}");
    server.stop().await;
}

#[tokio::test]
async fn a_token_in_a_header_wins_over_a_session() {
    let server = Server::start().await;
    let (secret, _) = token(&server, "read").await;
    let browser = sign_in(&server, json!({ "token": secret })).await;
    let both = format!("authorization: Bearer {TOKEN}\r\n");
    let me = browse(&server, "GET", "/v1/me", &browser.cookie, &both, None).await;
    assert_eq!(me.json()["scope"], "operator");
    server.stop().await;
}

#[tokio::test]
async fn nothing_that_a_session_reads_is_interpreted_as_a_page() {
    let server = Server::start().await;
    let browser = sign_in(&server, json!({ "token": TOKEN })).await;
    let read = browse(&server, "GET", "/v1/templates", &browser.cookie, "", None).await;
    assert!(read.header("content-security-policy").unwrap().starts_with("sandbox; default-src 'none'"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(read.header("cache-control"), Some("no-store"));
    server.stop().await;
}

#[tokio::test]
async fn the_page_has_a_strict_policy() {
    let server = Server::start().await;
    let root = server.call(None, "GET", "/", None).await;
    assert_eq!((root.status, root.header("location")), (307, Some("/dashboard/")));
    for path in ["/dashboard/", "/dashboard/sandboxes/x/files"] {
        let page = server.call(None, "GET", path, None).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        let text = String::from_utf8_lossy(&page.body);
        assert!(text.contains("Sandling") && !text.contains("<script>"), "{text}");
    }
    assert_eq!(server.call(None, "GET", "/dashboard/assets/none.js", None).await.status, 404);
    server.stop().await;
}
