//! A fleet that has lost its etcd gets another one.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, ask_as_node, drain, etcd_of, refused, start_fleet, wait_for};

fn is_member(node: &Node) -> bool {
    node.output(&["fleet", "status"]).status.success()
}

fn status(node: &Node, token: &str) -> String {
    let answer = node.ask("GET", "/v1/sandboxes", &format!("host: x\r\nauthorization: Bearer {token}\r\n"), "");
    answer.head[9..12].to_owned()
}

/// Creates a sandbox with a key as soon as the node can.
fn create(node: &Node, key: &str) -> String {
    let headers = format!("host: x\r\nidempotency-key: {key}\r\n");
    let mut id = None;
    wait_for("a create with a key works", || {
        let answer = node.ask("POST", "/v1/sandboxes", &headers, r#"{"template":"base"}"#);
        id = answer.head.starts_with("http/1.1 201").then(|| answer.json()["id"].as_str().unwrap().to_owned());
        id.is_some()
    });
    id.unwrap()
}

/// The node that runs etcd, and its generation.
fn etcd_runs_on(node: &Node) -> Option<(String, u64)> {
    let listed: Vec<Value> = serde_json::from_str(&node.ok(&["fleet", "status", "--json"])).unwrap();
    let found = listed.iter().find(|node| node["runs_etcd"] == true)?;
    Some((found["name"].as_str()?.to_owned(), found["etcd_generation"].as_u64()?))
}

fn says(node: &Node, what: &str) -> bool {
    fs::read_to_string(node.log()).unwrap().contains(what)
}

#[test]
fn a_fleet_outlives_the_machine_that_runs_its_etcd() {
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    let (mut removed, mut new) = (Node::new("d"), Node::new("e"));
    let store = TempDir::new().unwrap();
    let options = ["--store", store.path().to_str().unwrap()];
    let token = a.ok(&[&["fleet", "init", "--name", a.name, "--address", &a.address], &options[..]].concat());
    a.serve();
    wait_for("the first is a member", || is_member(&a) && a.states().len() == 1);
    b.join(&a, &token);
    b.serve();
    for node in [&mut c, &mut removed] {
        node.join(&a, &a.ok(&["fleet", "token"]));
        node.serve();
    }
    wait_for("all are members", || b.states().len() == 4);
    b.ok(&["fleet", "remove", "d"]);

    // What must not be forgotten: a revoked token, and where a sandbox has moved.
    let token = |label: &str| {
        let made = b.post("/v1/me/tokens", &format!(r#"{{"label":"{label}"}}"#)).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (kept, revoked) = (token("kept"), token("revoked"));
    wait_for("c knows the tokens", || [&kept, &revoked].iter().all(|token| status(&c, token) == "200"));
    let gone = c.ask("DELETE", &format!("/v1/me/tokens/{}", &revoked[..12]), "host: x\r\n", "");
    assert!(gone.head.starts_with("http/1.1 204"), "{}\n{}", gone.head, gone.body);
    drain(&b, &["a", "b"]);
    let moved = b.create("");
    drain(&b, &["a"]);
    b.ok(&["fleet", "drain", "c", "--wait", "1"]);
    b.ok(&["fleet", "undrain", "c"]);
    b.ok(&["fleet", "undrain", "a"]);
    wait_for("nobody drains", || b.states().iter().all(|(_, drains)| !drains));
    drain(&b, &["b", "c"]);
    let on_a = b.create("idempotency-key: on-a\r\n");
    drain(&b, &[]);
    let durable = |name: &str| b.ok(&["snapshot", "create", &on_a, "--name", name, "--durable"]);
    a.ok(&["exec", &on_a, "sh", "-c", "echo kept > /root/kept; sync"]);
    durable("golden");
    // The next change makes a new copy.
    let copy = store.path().join("records");
    let _ = fs::remove_file(&copy);
    durable("later");
    wait_for("the store has a copy of the records", || copy.exists());

    let rebuild = ["fleet", "rebuild"];
    refused(&b.output(&rebuild), "reaches the fleet's etcd");
    for node in [&a, &b, &c] {
        let known = node.home.path().join("fleet/nodes.json");
        wait_for("all know where the others are", || {
            fs::read_to_string(&known).is_ok_and(|text| text.matches(r#""name""#).count() == 2)
        });
    }

    a.kill();
    refused(&b.output(&rebuild), "`--lost a`");
    let said = b.ok(&["fleet", "rebuild", "--lost", "a"]);
    for expected in ["node b: switched", "node c: switched", "node a: not yet"] {
        assert!(said.contains(expected), "{said}");
    }
    wait_for("both are members again", || is_member(&c) && c.states().len() == 2 && b.states().len() == 2);
    assert_eq!(etcd_runs_on(&c), Some(("b".to_owned(), 1)));
    let one = create(&b, "one");
    assert_eq!(create(&c, "one"), one);
    let two = create(&c, "two");
    for node in [&b, &c] {
        assert_eq!((status(node, &kept).as_str(), status(node, &revoked).as_str()), ("200", "401"));
        for id in [&moved, &one, &two] {
            assert_eq!(node.ok(&["exec", id, "echo", "here"]), "here");
        }
    }
    // The snapshots of the lost machine stay durable.
    let restored = b.post("/v1/sandboxes", r#"{"from_snapshot":"golden"}"#);
    assert!(restored.head.starts_with("http/1.1 201"), "{}\n{}", restored.head, restored.body);
    assert_eq!(c.ok(&["exec", restored.json()["id"].as_str().unwrap(), "cat", "/root/kept"]), "kept");
    let health = "GET /fleet/health HTTP/1.1";
    assert!(ask_as_node(&b.address, Some(removed.home.path()), health).contains("node_removed"));
    let doctor = String::from_utf8(c.output(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("on node b, generation 1"), "{doctor}");

    // A node uses the new etcd after a restart, and a new machine learns it.
    c.kill();
    c.serve();
    wait_for("c is back", || is_member(&c) && c.states().len() == 2);
    new.join(&b, &b.ok(&["fleet", "token"]));
    new.serve();
    wait_for("it is a member", || is_member(&new) && c.states().len() == 3);

    // The lost machine comes back, and does not start its etcd.
    a.serve();
    assert!(says(&a, "the fleet was rebuilt with another etcd"));
    wait_for("all are members", || is_member(&a) && a.states().len() == 4);
    assert_eq!(etcd_of(a.child.as_ref().unwrap().id()), None);
    assert_eq!(create(&a, "one"), one);
    assert_eq!(c.ok(&["exec", &on_a, "echo", "still here"]), "still here");
    wait_for("a knows it", || status(&a, &revoked) == "401" && status(&a, &kept) == "200");

    // Another node can take over from one that is up. A node that is down meanwhile follows later.
    a.kill();
    refused(&c.output(&rebuild), "reaches the fleet's etcd");
    // An attempt that fails leaves the fleet its etcd.
    let in_the_way = b.home.path().join("fleet/engine-2");
    fs::write(&in_the_way, "").unwrap();
    refused(&b.output(&["fleet", "rebuild", "--force", "--lost", "a"]), "engine-2");
    fs::remove_file(&in_the_way).unwrap();
    wait_for("b runs etcd again", || etcd_of(b.child.as_ref().unwrap().id()).is_some());
    wait_for("both reach it", || is_member(&b) && is_member(&c));
    let said = c.ok(&["fleet", "rebuild", "--force", "--lost", "a"]);
    let switched = ["node b: switched", "node e: switched", "node a: not yet"];
    assert!(switched.iter().all(|expected| said.contains(expected)), "{said}");
    wait_for("b runs no etcd", || etcd_of(b.child.as_ref().unwrap().id()).is_none());
    wait_for("all are members again", || is_member(&b) && b.states().len() == 3);
    assert_eq!(etcd_runs_on(&b), Some(("c".to_owned(), 2)));
    a.serve();
    wait_for("all are members", || is_member(&a) && a.states().len() == 4);
    assert_eq!(a.ok(&["exec", &moved, "echo", "here"]), "here");
    assert!(create(&a, "three") != one);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_can_get_an_etcd_of_its_operator() {
    let old = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&old, &mut [&mut a, &mut b]);
    for node in [&a, &b] {
        let known = node.home.path().join("fleet/nodes.json");
        wait_for("both know where the other is", || Path::new(&known).exists());
    }
    let other = EtcdServer::start().await.unwrap();
    let mut stranger = Node::new("s");
    start_fleet(&other, &mut [&mut stranger]);
    drop(old);
    let at = |etcd: &EtcdServer| format!("etcd://{}", etcd.address());
    refused(&a.output(&["fleet", "rebuild", "--engine", &at(&other)]), "another fleet");
    let new = EtcdServer::start().await.unwrap();
    b.kill();
    let said = a.ok(&["fleet", "rebuild", "--engine", &at(&new), "--lost", "b"]);
    assert!(said.contains("node a: switched") && said.contains("node b: not yet"), "{said}");
    wait_for("a is a member again", || a.states().len() == 1);

    // b asks a, because it does not reach its etcd; the stranger's fleet is as it was.
    b.serve();
    wait_for("both are members again", || is_member(&b) && b.states().len() == 2);
    assert_eq!(create(&b, "one"), create(&a, "one"));
    assert_eq!(stranger.states().len(), 1);
}
