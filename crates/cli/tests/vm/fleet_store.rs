//! Snapshots that survive the loss of their node.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;
use crate::fleet::{Answer, Node, drain, start_fleet_with, wait_for};
use crate::s3_server::S3Server;

#[track_caller]
fn created(answer: &Answer) -> Value {
    assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
    answer.json()
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

/// A sandbox with a variable in its interpreter and a file on its disk.
fn sandbox_with_state(node: &Node) -> String {
    let sandbox = id(&created(&node.post("/v1/sandboxes", r#"{"template":"base"}"#)));
    let code = r#"{"code":"kept = 41\nopen('/root/kept', 'w').write('on the disk')"}"#;
    let ran = node.post(&format!("/v1/sandboxes/{sandbox}/run-code"), code);
    assert!(ran.head.starts_with("http/1.1 200"), "{}\n{}", ran.head, ran.body);
    node.ok(&["exec", &sandbox, "sync"]);
    sandbox
}

#[track_caller]
fn has_state(node: &Node, sandbox: &str) {
    let code = r#"{"code":"print(kept + 1, open('/root/kept').read())"}"#;
    let ran = node.post(&format!("/v1/sandboxes/{sandbox}/run-code"), code);
    assert!(ran.body.contains("42 on the disk"), "{}\n{}", ran.head, ran.body);
}

fn snapshots(node: &Node) -> Vec<Value> {
    node.ask("GET", "/v1/snapshots", "host: x\r\n", "").json()["snapshots"].as_array().unwrap().clone()
}

/// What `fleet status` says about the store, by node.
fn store_of(node: &Node, name: &str) -> Value {
    let nodes: Vec<Value> = serde_json::from_str(&node.ok(&["fleet", "status", "--json"])).unwrap();
    nodes.iter().find(|node| node["name"] == name).map(|node| node["store"].clone()).unwrap_or_default()
}

fn from_snapshot(node: &Node, snapshot: &str) -> Answer {
    node.post("/v1/sandboxes", &json!({"from_snapshot": snapshot}).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_snapshot_outlives_its_node_and_needs_no_template_elsewhere() {
    let etcd = EtcdServer::start().await.unwrap();
    let (shared, no_templates) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    let path = no_templates.path().to_str().unwrap().to_owned();
    b.variables = vec![("SANDLING_TEMPLATES", &*path.leak()), ("SANDLING_LOG", "sandling_api=info")].leak();
    start_fleet_with(&etcd, &mut [&mut a, &mut b], &["--store", shared.path().to_str().unwrap()]);
    wait_for("the store works", || store_of(&a, "b")["problem"].is_null() && store_of(&a, "b")["store"].is_string());

    // It is durable when the response says so. Although b is idle, it is not chosen: it has no template.
    let sandbox = sandbox_with_state(&a);
    let second = id(&created(&a.post("/v1/sandboxes", r#"{"template":"base"}"#)));
    assert_eq!(second[28..], sandbox[28..], "on a");
    a.ok(&["rm", &second]);
    let made = a.ok(&["snapshot", "create", &sandbox, "--name", "golden", "--durable", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["durability"], "durable");
    let golden = id(&made);
    assert_eq!(store_of(&b, "a")["durable"], 1);

    // Another one stands on it, and becomes durable in the background. So does a hibernated sandbox.
    let later = id(&created(&a.post(&format!("/v1/sandboxes/{sandbox}/snapshots"), "{}")));
    let hibernated = a.post(&format!("/v1/sandboxes/{sandbox}/hibernate"), "");
    assert!(
        hibernated.head.starts_with("http/1.1 204") || hibernated.head.starts_with("http/1.1 200"),
        "{}",
        hibernated.head
    );
    let durability = |path: &str| b.ask("GET", path, "host: x\r\n", "").json()["durability"].clone();
    wait_for("all is durable", || {
        durability(&format!("/v1/snapshots/{later}")) == "durable"
            && durability(&format!("/v1/sandboxes/{sandbox}")) == "durable"
    });

    // Without its node, b makes sandboxes of both. It has no template at all.
    a.kill();
    wait_for("a is no member", || store_of(&b, "a").is_null());
    for snapshot in ["golden", &golden, &later] {
        let sandbox = id(&created(&from_snapshot(&b, snapshot)));
        has_state(&b, &sandbox);
        b.ok(&["rm", &sandbox]);
    }
    let log = fs::read_to_string(b.home.path().join("server.log")).unwrap();
    assert_eq!(log.matches("a durable snapshot of another node is here").count(), 2, "the copy is used again");
    let listed = snapshots(&b);
    assert_eq!(listed.iter().map(id).collect::<Vec<_>>(), [later.clone(), golden.clone()]);
    assert_eq!((&listed[0]["node"], &listed[0]["durability"]), (&json!("a"), &json!("durable")));
    let shown = b.ask("GET", "/v1/snapshots/golden", "host: x\r\n", "");
    assert_eq!((shown.json()["id"].as_str(), &shown.json()["node"]), (Some(&*golden), &json!("a")));
    let deleted = b.ask("DELETE", "/v1/snapshots/golden", "host: x\r\n", "");
    assert!(deleted.head.starts_with("http/1.1 503"), "only its node deletes it: {}", deleted.head);

    // Its node comes back, knows what is durable, and deletes.
    a.serve();
    wait_for("a is back", || store_of(&b, "a")["durable"] == 3);
    let deleted = b.ask("DELETE", "/v1/snapshots/golden", "host: x\r\n", "");
    assert!(deleted.head.starts_with("http/1.1 204"), "{}\n{}", deleted.head, deleted.body);
    wait_for("the fleet has forgotten it", || store_of(&b, "a")["durable"] == 2);
    let woken = b.post(&format!("/v1/sandboxes/{sandbox}/wake"), "");
    assert!(woken.head.starts_with("http/1.1 200"), "{}\n{}", woken.head, woken.body);
    wait_for("what is awake is not stored", || store_of(&b, "a")["durable"] == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_stay_local_while_the_bucket_is_down_and_peers_give_their_bytes_first() {
    let etcd = EtcdServer::start().await.unwrap();
    let s3 = S3Server::start("fleet").unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    let variables = Vec::from(s3.variables());
    a.variables = variables.clone().leak();
    b.variables = [variables, vec![("SANDLING_LOG", "sandling_api=info")]].concat().leak();
    let (url, store) = (s3.url(), "s3://fleet/test");
    start_fleet_with(&etcd, &mut [&mut a, &mut b], &["--store", store, "--store-endpoint", &url]);
    wait_for("the store works", || store_of(&a, "a")["problem"].is_null());
    drain(&a, &["b"]);
    let sandbox = sandbox_with_state(&a);
    let made = a.ok(&["snapshot", "create", &sandbox, "--durable"]);

    // While a drains, b makes the sandbox, of bytes that a gives.
    drain(&a, &["a"]);
    let elsewhere = id(&created(&from_snapshot(&a, &made)));
    assert_ne!(elsewhere[28..], sandbox[28..], "on b");
    has_state(&a, &elsewhere);
    let log = fs::read_to_string(b.home.path().join("server.log")).unwrap();
    assert!(log.contains("from_peers=1"), "{log}");

    // Without the bucket, snapshots stay local, and everything else works.
    drop(s3);
    let local = id(&created(&a.post(&format!("/v1/sandboxes/{sandbox}/snapshots"), "{}")));
    wait_for("the status says so", || store_of(&a, "a")["problem"].as_str().is_some_and(|why| why.contains(store)));
    assert_eq!(store_of(&a, "a")["waiting"], 1);
    let listed = snapshots(&b);
    let durability = |id: &str| listed.iter().find(|item| item["id"] == id).unwrap()["durability"].clone();
    assert_eq!((durability(&local), durability(&made)), (json!("local"), json!("durable")));
    drain(&a, &["b"]);
    let here = id(&created(&from_snapshot(&b, &local)));
    assert_eq!(here[28..], sandbox[28..], "on a");
    has_state(&b, &here);
    drain(&a, &["a"]);
    let refused = from_snapshot(&a, &local);
    assert!(refused.body.contains("is on node a, which is draining"), "{}\n{}", refused.head, refused.body);
}
