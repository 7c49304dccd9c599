//! Sandboxes with failover outlive their node.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sandling_fleet::Ledger as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, drain, refused, start_fleet_with, wait_for};
use crate::harness::qemu_processes;

/// Points are made as often as they can be.
const OFTEN: &[&str] = &["--failover-every", "1"];
/// Only the first point is made.
const ONCE: &[&str] = &["--failover-every", "86400"];

#[track_caller]
fn created(node: &Node, body: &Value) -> String {
    let answer = node.post("/v1/sandboxes", &body.to_string());
    assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn shown(node: &Node, sandbox: &str) -> Value {
    node.ask("GET", &format!("/v1/sandboxes/{sandbox}"), "host: x\r\n", "").json()
}

/// Waits until the sandbox has a point that was made from now on.
fn wait_for_point(node: &Node, sandbox: &str) {
    let now = jiff::Timestamp::now();
    wait_for("there is a new point", || {
        let view = shown(node, sandbox);
        let point = view["failover"]["point_at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        point.is_some_and(|at| at >= now)
    });
}

fn signal(node: &Node, signal: Signal) {
    kill_process(Pid::from_child(node.child.as_ref().unwrap()), signal).unwrap();
}

/// Ends a node's server and its machines, as a power cut does.
fn cut_power(node: &mut Node) {
    let machines = qemu_processes(node.home.path());
    node.kill();
    for pid in machines {
        // It may have ended meanwhile.
        let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
    }
}

fn runs_on(node: &Node, sandbox: &str) -> bool {
    node.home.path().join("sandboxes").join(sandbox).exists()
}

/// What a command prints, as soon as it can run.
#[track_caller]
fn eventually(node: &Node, sandbox: &str, command: &str) -> String {
    let mut printed = None;
    wait_for("the command runs", || {
        let ran = node.output(&["exec", sandbox, "sh", "-c", command]);
        printed = ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap().trim().to_owned());
        printed.is_some()
    });
    printed.unwrap()
}

fn events(node: &Node, sandbox: &str, kind: &str) -> Vec<Value> {
    let text = node.ok(&["events", "--json", sandbox]);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    events.into_iter().filter(|event| event["type"] == format!("sandbox.{kind}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_wakes_on_another_node_when_its_own_is_lost() {
    let etcd = EtcdServer::start().await.unwrap();
    let store = TempDir::new().unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    (a.serve_options, b.serve_options) = (OFTEN, OFTEN);
    start_fleet_with(&etcd, &mut [&mut a, &mut b], &["--store", store.path().to_str().unwrap()]);
    drain(&a, &["b"]);
    a.ok(&["volume", "create", "data", "--size", "16"]);
    let refusal = b.output(&["create", "-t", "base", "--failover", "snapshot", "--volume", "data:/data"]);
    refused(&refusal, "a sandbox with volumes cannot leave its node");
    let body = json!({
        "template": "base", "name": "web", "failover": "snapshot", "env": {"COLOR": "blue"}, "labels": {"l": "1"},
        "ttl_seconds": 3600,
    });
    let id = created(&b, &body);
    let plain = created(&b, &json!({"template": "base"}));
    let code = r#"{"code":"kept = 41\nopen('/root/kept', 'w').write('on the disk')"}"#;
    let ran = b.post(&format!("/v1/sandboxes/{id}/run-code"), code);
    assert!(ran.head.starts_with("http/1.1 200"), "{}\n{}", ran.head, ran.body);
    b.ok(&["exec", "--detach", &id, "sh", "-c", "while sleep 0.2; do echo beat >> /tmp/beats; done"]);
    wait_for_point(&b, &id);
    let before = shown(&b, &id);
    drain(&a, &[]);

    cut_power(&mut a);
    refused(&b.output(&["exec", &plain, "true"]), "node a does not answer");
    assert_eq!(eventually(&b, "web", "cat /root/kept; echo; printenv COLOR"), "on the disk\nblue");
    let ran = b.post(&format!("/v1/sandboxes/{id}/run-code"), r#"{"code":"print(kept + 1)"}"#);
    assert!(ran.body.contains("42"), "{}\n{}", ran.head, ran.body);
    let beats = || b.ok(&["exec", &id, "wc", "-l", "/tmp/beats"]);
    let first = beats();
    wait_for("its command goes on", || beats() != first);
    assert!(runs_on(&b, &id));
    let after = shown(&b, &id);
    for field in ["id", "name", "created_at", "labels", "ttl_seconds", "memory_mb"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(after["failover"]["last"]["from"], "a");
    assert_eq!(events(&b, &id, "failed_over").len(), 1);
    refused(&b.output(&["exec", &plain, "true"]), "node a");

    // Its node comes back, has nothing of it, and finds it.
    a.serve();
    assert_eq!(eventually(&a, "web", "cat /root/kept"), "on the disk");
    wait_for("nothing is left", || !runs_on(&a, &id));
    assert_eq!(a.listed().1, std::slice::from_ref(&id), "the other one was lost with its machine");

    // A drain moves it, and its record goes along.
    wait_for_point(&b, &id);
    b.ok(&["fleet", "drain", "--wait", "1", "b"]);
    assert_eq!(a.ok(&["exec", &id, "cat", "/root/kept"]), "on the disk");
    assert!(runs_on(&a, &id));
    wait_for_point(&a, &id);
    cut_power(&mut a);
    b.ok(&["fleet", "undrain", "b"]);
    assert_eq!(eventually(&b, &id, "cat /root/kept"), "on the disk");

    // What is deleted stays so.
    b.ok(&["rm", &id]);
    assert_eq!(etcd.ledger().get(&format!("failover/{id}")).await.unwrap(), None);
    a.serve();
    wait_for("nothing is left", || a.listed().1.is_empty() && !runs_on(&a, &id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_stood_still_throws_its_machine_away_or_goes_on() {
    let etcd = EtcdServer::start().await.unwrap();
    let store = TempDir::new().unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    (a.serve_options, b.serve_options) = (ONCE, ONCE);
    start_fleet_with(&etcd, &mut [&mut a, &mut b], &["--store", store.path().to_str().unwrap()]);
    drain(&a, &["b"]);
    let asked = jiff::Timestamp::now();
    let id = created(&b, &json!({"template": "base", "failover": "snapshot"}));
    let point_at = || shown(&b, &id)["failover"]["point_at"].clone();
    wait_for("there is a point", || point_at().is_string());
    let first = point_at();
    b.ok(&["network", &id, "--allow", "pypi"]);
    wait_for("its point has the changed settings", || point_at() != first);
    drain(&a, &[]);
    b.ok(&["exec", &id, "sh", "-c", "echo since >> /root/since"]);

    // It has no lease for a moment, but nobody has taken over: all that it did is there.
    signal(&a, Signal::STOP);
    thread::sleep(Duration::from_secs(9));
    signal(&a, Signal::CONT);
    assert_eq!(eventually(&b, &id, "cat /root/since"), "since");
    // The same if its server is killed and starts again.
    a.kill();
    a.serve();
    assert_eq!(eventually(&b, &id, "cat /root/since"), "since");
    assert!(runs_on(&a, &id) && !runs_on(&b, &id));
    // If its machine has died with the server, it goes back to the point here.
    cut_power(&mut a);
    a.serve();
    assert_eq!(eventually(&b, &id, "cat /root/since || echo none"), "none");
    assert!(runs_on(&a, &id) && !runs_on(&b, &id));
    assert_eq!(shown(&b, &id)["failover"]["last"]["from"], "a");

    // It stands still for long. A request that waits for it runs once at most.
    signal(&a, Signal::STOP);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.output(&["exec", &id, "sh", "-c", "echo once >> /root/log"]));
        assert_eq!(eventually(&b, &id, "touch /root/log; echo taken over"), "taken over");
        assert!(runs_on(&a, &id) && runs_on(&b, &id));
        signal(&a, Signal::CONT);
        waiting.join().unwrap();
    });
    wait_for("the old machine is thrown away", || !runs_on(&a, &id));
    wait_for("the log says so", || fs::read_to_string(a.log()).unwrap().contains("its machine here was thrown away"));
    let lines = eventually(&a, &id, "cat /root/log");
    assert!(["", "once"].contains(&&*lines), "{lines}");
    let last = shown(&a, &id)["failover"]["last"]["point_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(last > asked);
    assert_eq!(a.listed().1, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_needs_a_fleet_with_a_store() {
    let etcd = EtcdServer::start().await.unwrap();
    let mut a = Node::new("a");
    start_fleet_with(&etcd, &mut [&mut a], &[]);
    let answer = a.post("/v1/sandboxes", r#"{"template":"base","failover":"snapshot"}"#);
    assert!(answer.head.starts_with("http/1.1 409"), "{}\n{}", answer.head, answer.body);
    assert!(answer.body.contains("`failover` needs a fleet with a store"), "{}", answer.body);
    assert_eq!(answer.json()["code"], "no_store");
}
