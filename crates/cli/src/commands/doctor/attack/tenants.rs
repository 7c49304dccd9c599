//! One tenant's token against another tenant's objects.

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use super::http::Call;
use super::trial::Trial;
use super::world::{Ready, World};

/// Routes of a sandbox, with bodies that are valid, so that only the owner is wrong.
fn routes() -> Vec<(Method, &'static str, Option<Value>)> {
    let (get, post, put) = (|path| (Method::GET, path, None), Method::POST, Method::PUT);
    vec![
        get(""),
        get("/execs"),
        get("/events"),
        get("/logs"),
        get("/metrics"),
        get("/lifecycle"),
        get("/ports"),
        get("/timeline"),
        get("/family"),
        get("/network"),
        get("/network/events"),
        get("/fs?path=/etc/hostname"),
        get("/fs/dir?path=/"),
        get("/proxy/3456/"),
        (post.clone(), "/exec", Some(json!({ "cmd": "id" }))),
        (post.clone(), "/exec/stream", Some(json!({ "cmd": "id" }))),
        (post.clone(), "/repl", Some(json!({ "code": "1", "language": "python" }))),
        (post.clone(), "/fs/mkdir", Some(json!({ "path": "/tmp/x" }))),
        (post.clone(), "/preview-token", Some(json!({ "port": 3456 }))),
        (post.clone(), "/fork", Some(json!({}))),
        (post.clone(), "/snapshots", Some(json!({}))),
        (post.clone(), "/checkpoints", Some(json!({}))),
        (post.clone(), "/hibernate", None),
        (post.clone(), "/pause", None),
        (post, "/wake", None),
        (put, "/network", Some(json!({ "mode": "open" }))),
        (Method::PATCH, "/lifecycle", Some(json!({ "ttl_seconds": 60 }))),
        (Method::DELETE, "/fs?path=/etc/hostname", None),
        (Method::DELETE, "", None),
    ]
}

pub async fn sandboxes(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    for (method, path, body) in routes() {
        let whole = format!("/v1/sandboxes/{}{path}", ready.witness.id);
        expect_missing(ready, trial, method, &whole, body).await?;
    }
    let key: String = ready.attacker.token.bytes().map(|byte| format!("{byte:02x}")).collect();
    for path in [format!("/sandboxes/{}", ready.witness.id), format!("/sandboxes/{}/metrics", ready.witness.id)] {
        let call = Call::new(Method::GET, &path).header("x-api-key", format!("e2b_{key}"));
        let answer = call.send(ready.server.address).await?;
        trial.record(answer.status == 404, format!("GET {path} in E2B's dialect"), answer.brief());
    }
    let listed = ready.server.must(&ready.attacker.token, Method::GET, "/v1/sandboxes", None).await?;
    let seen = listed.to_string().contains(&ready.witness.id);
    trial.record(!seen, "the list of sandboxes", if seen { "it contains the neighbor's" } else { "only its own" });
    let alive = ready.witness.shell("echo alive", std::time::Duration::from_secs(20)).await?.stdout;
    trial.record(alive == "alive\n", "the neighbor's sandbox afterwards", format!("it printed {alive:?}"));
    Ok(())
}

pub async fn other_objects(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let (server, owner) = (&ready.server, ready.neighbor.token.as_str());
    let volume = json!({ "name": "private", "size_mb": 16 });
    server.must(owner, Method::POST, "/v1/volumes", Some(volume)).await?;
    let secret = json!({ "value": "attack-secret-value", "hosts": ["allowed.test"] });
    server.must(owner, Method::PUT, "/v1/secrets/PRIVATE_KEY", Some(secret)).await?;
    let snapshot = format!("/v1/sandboxes/{}/snapshots", ready.witness.id);
    let snapshot = server.must(owner, Method::POST, &snapshot, Some(json!({}))).await?;
    let snapshot = snapshot["id"].as_str().context("the snapshot has no id")?;
    let token = format!("/v1/me/tokens/{}", &owner[..12]);
    for (method, path, body) in [
        (Method::GET, "/v1/volumes/private", None),
        (Method::POST, "/v1/volumes/private/clone", Some(json!({ "name": "mine" }))),
        (Method::DELETE, "/v1/volumes/private", None),
        (Method::GET, &*format!("/v1/snapshots/{snapshot}"), None),
        (Method::DELETE, &*format!("/v1/snapshots/{snapshot}"), None),
        (Method::DELETE, "/v1/secrets/PRIVATE_KEY", None),
        (Method::DELETE, token.as_str(), None),
        (Method::GET, &*format!("/v1/audit?workspace={}", ready.neighbor.workspace), None),
        (Method::PATCH, &*format!("/v1/workspaces/{}", ready.neighbor.workspace), Some(json!({ "record_runs": true }))),
    ] {
        expect_missing(ready, trial, method, path, body).await?;
    }
    let create = json!({ "from_snapshot": snapshot, "ttl_seconds": 60 });
    let answer = server.call(&ready.attacker.token, Method::POST, "/v1/sandboxes", Some(create)).await?;
    let refused = (400..500).contains(&answer.status);
    trial.record(refused, "a sandbox from the neighbor's snapshot", answer.brief());
    for path in ["/v1/volumes", "/v1/snapshots", "/v1/secrets", "/v1/me/tokens"] {
        let listed = server.call(&ready.attacker.token, Method::GET, path, None).await?.text();
        let seen = listed.contains("\"private\"") || listed.contains("PRIVATE_KEY") || listed.contains(snapshot);
        let seen = seen || listed.contains(&owner[..12]);
        trial.record(
            !seen,
            format!("the list at {path}"),
            if seen { "it contains the neighbor's" } else { "only its own" },
        );
    }
    Ok(())
}

async fn expect_missing(
    ready: &Ready,
    trial: &mut Trial,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> anyhow::Result<()> {
    let answer = ready.server.call(&ready.attacker.token, method.clone(), path, body).await?;
    trial.record(answer.status == 404, format!("{method} {path}"), answer.brief());
    Ok(())
}
