//! Defaults of networks, and what binds.

use serde_json::{Value, json};

use crate::harness::{Answer, Server, TOKEN};

async fn put(server: &Server, path: &str, body: Value) -> Answer {
    server.call(Some(TOKEN), "PUT", path, Some(body)).await
}

#[tokio::test]
async fn a_default_binds_until_it_no_longer_does() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/network").await.json(), json!({ "policy": null, "limits": {}, "binding": false }));
    let set = put(&server, "/v1/network", json!({ "allow": ["pypi"], "binding": true })).await.json();
    assert_eq!((&set["policy"]["allow"], &set["binding"]), (&json!(["pypi"]), &json!(true)));
    // What is not said stays, as with everything else of it.
    let limited = put(&server, "/v1/network", json!({ "limits": { "connections": 5 } })).await.json();
    assert_eq!((&limited["binding"], &limited["limits"]["connections"]), (&json!(true), &json!(5)));
    assert_eq!(server.get("/v1/network").await.json(), limited);
    let loose = put(&server, "/v1/network", json!({ "binding": false })).await.json();
    assert_eq!((&loose["policy"]["allow"], &loose["binding"]), (&json!(["pypi"]), &json!(false)));
    put(&server, "/v1/network", json!({ "binding": true })).await;
    assert_eq!(server.call(Some(TOKEN), "DELETE", "/v1/network", None).await.status, 204);
    assert_eq!(server.get("/v1/network").await.json()["binding"], false);
    let log = server.get("/v1/audit").await.json();
    let changes = log["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == "network.default").count();
    assert_eq!(changes, 5);
    server.stop().await;
}

#[tokio::test]
async fn whoever_adds_a_name_opens_nothing_else() {
    let server = Server::start().await;
    let strict = json!({ "mode": "open", "deny": ["203.0.113.0/24"], "tls": "inspected" });
    put(&server, "/v1/network", strict).await;
    let listed = put(&server, "/v1/network", json!({ "allow": ["PyPI"] })).await.json();
    let expected = json!({ "mode": "allow", "allow": ["pypi"], "deny": ["203.0.113.0/24"], "tls": "inspected" });
    assert_eq!(listed["policy"], expected);
    let sealed = put(&server, "/v1/network", json!({ "tls": "sealed", "deny": [] })).await.json();
    assert_eq!(sealed["policy"], json!({ "mode": "allow", "allow": ["pypi"], "tls": "sealed" }));
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_bind_is_refused_in_a_sentence() {
    let server = Server::start().await;
    let bound = json!({ "allow": ["pypi"], "binding": true });
    let bad = (400, "bad_request".to_owned());
    for (path, body) in [("/v1/network", json!({ "binding": true })), ("/v1/templates/base/network", bound.clone())] {
        let refused = put(&server, path, body).await;
        assert_eq!(refused.refusal(), bad, "{path}");
        assert!(refused.json()["error"].as_str().unwrap().contains("bind"), "{}", refused.json());
    }
    let made = server.post("/v1/sandboxes", json!({ "template": "base", "network": bound })).await;
    assert_eq!(made.refusal(), bad);
    assert_eq!(server.get("/v1/network").await.json()["policy"], Value::Null, "nothing of it was kept");
    let unknown = format!("/v1/sandboxes/{}/network", "0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b");
    assert_eq!(server.call(Some(TOKEN), "DELETE", &unknown, None).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn only_an_administrator_binds_and_only_the_own_workspace() {
    let server = Server::start().await;
    let token = async |workspace: &str, scope: &str| {
        server.post("/v1/workspaces", json!({ "name": workspace })).await;
        let path = format!("/v1/workspaces/{workspace}/tokens");
        server.post(&path, json!({ "scope": scope })).await.json()["token"].as_str().unwrap().to_owned()
    };
    let (run, admin) = (token("team", "run").await, token("team", "admin").await);
    let bound = || Some(json!({ "mode": "deny", "binding": true }));
    assert_eq!(server.call(Some(&run), "PUT", "/v1/network", bound()).await.status, 403);
    assert_eq!(server.call(Some(&run), "DELETE", "/v1/network", None).await.status, 403);
    assert_eq!(server.call(Some(&admin), "PUT", "/v1/network", bound()).await.status, 200);
    assert_eq!(server.call(Some(&run), "GET", "/v1/network", None).await.json()["binding"], true);
    assert_eq!(server.get("/v1/network").await.json()["binding"], false, "another workspace's is its own");
    server.stop().await;
}
