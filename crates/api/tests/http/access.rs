//! Who may do what.

use sandling_service::AuditPolicy;
use serde_json::json;

use crate::harness::{Server, TOKEN};

async fn workspace_token(server: &Server, workspace: &str, scope: &str) -> String {
    server.post("/v1/workspaces", json!({ "name": workspace })).await;
    let path = format!("/v1/workspaces/{workspace}/tokens");
    let made = server.post(&path, json!({ "label": "t", "scope": scope })).await;
    assert_eq!(made.status, 201, "{}", made.json());
    made.json()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_that_is_missing_or_wrong_is_refused_with_its_reason() {
    let server = Server::start().await;
    let unknown = format!("sdl_{}", "0".repeat(40));
    for (token, code) in
        [(None, "token_missing"), (Some("x"), "token_malformed"), (Some(unknown.as_str()), "token_unknown")]
    {
        let answer = server.call(token, "GET", "/v1/me", None).await;
        assert_eq!(answer.refusal(), (401, code.to_owned()));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_works_until_it_is_revoked_and_its_secret_is_shown_once() {
    let server = Server::start().await;
    let made = server.post("/v1/me/tokens", json!({ "label": "ci", "expires_in_days": 1 })).await;
    assert_eq!(made.status, 201);
    let (secret, prefix) = (made.json()["token"].as_str().unwrap().to_owned(), made.json()["prefix"].clone());
    assert_eq!(server.call(Some(&secret), "GET", "/v1/me", None).await.json()["name"], "ci");
    let listed = server.get("/v1/me/tokens").await;
    assert!(!String::from_utf8_lossy(&listed.body).contains(&secret));
    let path = format!("/v1/me/tokens/{}", prefix.as_str().unwrap());
    assert_eq!(server.call(Some(TOKEN), "DELETE", &path, None).await.status, 204);
    assert_eq!(server.call(Some(&secret), "GET", "/v1/me", None).await.refusal(), (401, "token_revoked".to_owned()));
    assert_eq!(server.call(Some(TOKEN), "DELETE", &path, None).await.refusal(), (404, "not_found".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_workspace_takes_its_volumes_along() {
    let server = Server::start().await;
    let (team, other) = (workspace_token(&server, "team", "run").await, workspace_token(&server, "other", "run").await);
    for (token, name) in [(&team, "a"), (&team, "b"), (&other, "a")] {
        let made = server.call(Some(token), "POST", "/v1/volumes", Some(json!({ "name": name, "size_mb": 16 }))).await;
        assert_eq!(made.status, 201, "{}", made.json());
    }
    assert_eq!(server.call(Some(TOKEN), "DELETE", "/v1/workspaces/team", None).await.status, 204);
    let left = std::fs::read_dir(server.home().join("volumes")).unwrap().count();
    assert_eq!(left, 1, "the other workspace's volume stays, and no other file");
    assert_eq!(server.call(Some(&other), "GET", "/v1/volumes", None).await.json()[0]["name"], "a");
    server.stop().await;
}

#[tokio::test]
async fn a_scope_ends_where_it_ends() {
    let server = Server::start().await;
    let read = workspace_token(&server, "team", "read").await;
    let admin = workspace_token(&server, "team", "admin").await;
    let may =
        async |token: &str, method: &str, path: &str, body| server.call(Some(token), method, path, body).await.status;
    assert_eq!(may(&read, "GET", "/v1/sandboxes", None).await, 200);
    assert_eq!(may(&read, "POST", "/v1/sandboxes", Some(json!({}))).await, 403);
    assert_eq!(may(&read, "GET", "/v1/audit", None).await, 403);
    assert_eq!(may(&admin, "GET", "/v1/audit", None).await, 200);
    assert_eq!(may(&admin, "GET", "/v1/workspaces", None).await, 403);
    assert_eq!(may(&admin, "GET", "/metrics", None).await, 403);
    assert_eq!(may(&admin, "POST", "/v1/me/tokens", Some(json!({ "scope": "operator" }))).await, 403);
    assert_eq!(may(TOKEN, "GET", "/metrics", None).await, 200);
    server.stop().await;
}

#[tokio::test]
async fn one_workspace_does_not_see_another() {
    let server = Server::start().await;
    let (a, b) = (workspace_token(&server, "a", "admin").await, workspace_token(&server, "b", "admin").await);
    let made = server.call(Some(&a), "POST", "/v1/me/tokens", Some(json!({ "label": "mine" }))).await;
    let path = format!("/v1/me/tokens/{}", made.json()["prefix"].as_str().unwrap());
    assert_eq!(server.call(Some(&b), "DELETE", &path, None).await.status, 404);
    let body = Some(json!({ "record_runs": true }));
    assert_eq!(server.call(Some(&b), "PATCH", "/v1/workspaces/a", body.clone()).await.status, 404);
    assert_eq!(server.call(Some(&a), "PATCH", "/v1/workspaces/a", body).await.json()["record_runs"], true);
    assert_eq!(server.call(Some(&b), "GET", "/v1/audit?workspace=a", None).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn every_change_is_in_the_audit_log_with_who_and_what_came_of_it() {
    let server = Server::start().await;
    let made = server.post("/v1/me/tokens", json!({ "label": "audited" })).await;
    let refused = server.post("/v1/sandboxes", json!({ "template": "no-such-template" })).await;
    assert_eq!(refused.refusal(), (400, "template_unknown".to_owned()));
    let log = server.get("/v1/audit").await.json();
    let entries = log["items"].as_array().unwrap();
    let find = |action: &str| entries.iter().find(|entry| entry["action"] == action).unwrap();
    assert_eq!(find("token.create")["object"], made.json()["prefix"]);
    assert_eq!(find("token.create")["actor"]["prefix"], "environment");
    assert_eq!(find("token.create")["request_id"].as_str(), made.header("x-request-id"));
    assert_eq!(
        (&find("sandbox.create")["result"], &find("sandbox.create")["code"]),
        (&json!("refused"), &json!("template_unknown"))
    );
    server.stop().await;
}

#[tokio::test]
async fn refused_requests_fill_no_audit_log_and_the_chains_verify() {
    let server = Server::start().await;
    let read = workspace_token(&server, "noisy", "read").await;
    for _ in 0..200 {
        assert_eq!(server.call(Some(&read), "POST", "/v1/sandboxes", Some(json!({}))).await.refusal().0, 403);
    }
    let log = server.get("/v1/audit?workspace=noisy&limit=1000").await.json();
    let entries = log["items"].as_array().unwrap();
    assert!(entries.len() <= 20, "{} entries", entries.len());
    assert!(entries.iter().all(|entry| entry["kind"] == "refusal" && entry["hash"].is_string()));
    let verified = server.get("/v1/audit/verify").await.json();
    let chains = verified["chains"].as_array().unwrap();
    assert!(chains.iter().all(|chain| chain["broken"].is_null()), "{verified}");
    assert!(chains.iter().any(|chain| chain["workspace"] == "noisy" && chain["kind"] == "refusal"), "{verified}");
    let admin = workspace_token(&server, "other", "admin").await;
    let own = server.call(Some(&admin), "GET", "/v1/audit/verify", None).await.json();
    let foreign = |chain: &serde_json::Value| chain["workspace"] != "other";
    assert!(!own["chains"].as_array().unwrap().iter().any(foreign), "{own}");
    assert_eq!(server.call(Some(&admin), "GET", "/v1/audit/verify?workspace=noisy", None).await.status, 404);
    assert_eq!(server.call(Some(&read), "GET", "/v1/audit/verify", None).await.status, 403);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_must_audit_refuses_what_it_cannot_audit() {
    let server = Server::start_with_audit(AuditPolicy::Required).await;
    let make = async || server.post("/v1/me/tokens", json!({ "label": "one more" })).await;
    let tokens = async || server.get("/v1/me/tokens").await.json()["items"].as_array().unwrap().len();
    assert_eq!(make().await.status, 201);
    let before = tokens().await;
    let store = server.store();
    let stop = "BEGIN SELECT RAISE(ABORT, 'broken for a test'); END";
    store.execute_batch(&format!("CREATE TRIGGER broken BEFORE INSERT ON audit_intents {stop}")).unwrap();
    assert_eq!(make().await.refusal(), (503, "audit_unavailable".to_owned()));
    assert_eq!(tokens().await, before, "nothing was done, and reads still work");
    store.execute_batch("DROP TRIGGER broken").unwrap();
    assert_eq!(make().await.status, 201);
    assert_eq!(tokens().await, before + 1);
    let intents: i64 = store.query_row("SELECT count(*) FROM audit_intents", [], |row| row.get(0)).unwrap();
    assert_eq!(intents, 0, "every action has its result");
    let metrics = String::from_utf8(server.get("/metrics").await.body).unwrap();
    assert!(metrics.contains("sandling_audit_failures_total 1"), "{metrics}");
    server.stop().await;
}

#[tokio::test]
async fn a_quota_is_answered_before_anything_is_made() {
    let server = Server::start().await;
    let token = workspace_token(&server, "small", "admin").await;
    let quota = json!({ "sandboxes": 0 });
    assert_eq!(server.call(Some(TOKEN), "PUT", "/v1/workspaces/small/quota", Some(quota)).await.status, 200);
    let refused = server.call(Some(&token), "POST", "/v1/sandboxes", Some(json!({ "template": "base" }))).await;
    assert_eq!(refused.refusal(), (429, "quota_exceeded".to_owned()));
    assert_eq!(refused.header("retry-after"), None);
    let view = server.call(Some(&token), "GET", "/v1/quota", None).await.json();
    assert_eq!((&view["limits"]["sandboxes"], &view["used"]["sandboxes"]), (&json!(0), &json!(0)));
    server.stop().await;
}

#[tokio::test]
async fn a_quota_changes_only_in_the_limits_that_a_request_names() {
    let server = Server::start().await;
    let path = "/v1/workspaces/default/quota";
    let before = server.get(path).await.json()["limits"].clone();
    let changed = server.call(Some(TOKEN), "PUT", path, Some(json!({ "sandboxes": 3, "cpu": null }))).await.json();
    let mut expected = before.clone();
    (expected["sandboxes"], expected["cpu"]) = (json!(3), json!(null));
    assert_eq!(changed["limits"], expected);
    assert!(before["memory_mb"].is_number(), "there is a limit that could get lost");
    assert_eq!(server.call(Some(TOKEN), "PUT", path, Some(json!({}))).await.json()["limits"], expected);
    let unknown = server.call(Some(TOKEN), "PUT", path, Some(json!({ "ram": 1 }))).await;
    assert_eq!(unknown.refusal().0, 400);
    server.stop().await;
}

#[tokio::test]
async fn the_form_of_a_token_selects_the_dialect() {
    let server = Server::start().await;
    let pandastack = format!("pds_{TOKEN}");
    for (token, method, path) in
        [(TOKEN, "GET", "/v1/me"), (pandastack.as_str(), "GET", "/v1/me"), (&pandastack, "GET", "/v1/sandboxes")]
    {
        assert_eq!(server.call(Some(token), method, path, None).await.status, 200, "{token} {path}");
    }
    // Only PandaStack's dialect has the field; it then misses the template.
    let body = || Some(json!({ "template": "missing", "disk_gb": 1 }));
    let own = server.call(Some(TOKEN), "POST", "/v1/sandboxes", body()).await;
    assert_eq!(own.refusal(), (400, "bad_request".to_owned()));
    let theirs = server.call(Some(&pandastack), "POST", "/v1/sandboxes", body()).await;
    assert_eq!(theirs.refusal().1, "template_unknown", "{}", theirs.json());
    assert_eq!(server.call(Some(&pandastack), "DELETE", "/v1/sandboxes", None).await.status, 405);
    server.stop().await;
}
