//! Sandboxes and snapshots leave a node that drains, and their users notice nothing.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, drain, refused, start_fleet, wait_for};

/// The files of moves that are under way on a node.
fn under_way(node: &Node) -> Vec<PathBuf> {
    let files = std::fs::read_dir(node.home.path().join("moves")).into_iter().flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
}

fn created(node: &Node, body: &Value) -> String {
    let answer = node.post("/v1/sandboxes", &body.to_string());
    assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn posted(node: &Node, path: &str, body: &str) -> Value {
    let answer = node.post(path, body);
    assert!(answer.head.starts_with("http/1.1 20"), "{}\n{}", answer.head, answer.body);
    serde_json::from_str(&answer.body).unwrap_or_default()
}

/// What a node says about itself in `fleet status`. Nothing while it registers anew after a restart.
fn status(through: &Node, name: &str) -> Value {
    let nodes: Vec<Value> = serde_json::from_str(&through.ok(&["fleet", "status", "--json"])).unwrap();
    nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default()
}

/// Those of the nodes on whose machine the sandbox runs.
fn running_on<'a>(nodes: &[&'a Node], id: &str) -> Vec<&'a str> {
    let runs = |node: &&&Node| node.home.path().join("sandboxes").join(id).exists();
    nodes.iter().filter(runs).map(|node| node.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_what_can_move_and_fails_no_command() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    // Without templates of its own, so that it gets the bake, too.
    c.variables = &[("SANDLING_TEMPLATES", "")];
    start_fleet(&etcd, &mut [&mut a, &mut b, &mut c]);
    drain(&a, &["b", "c"]);
    let idle = created(&b, &json!({"template": "base", "name": "web", "env": {"COLOR": "blue"}, "labels": {"l": "1"}}));
    let busy = created(&b, &json!({"template": "base"}));
    let asleep = created(&b, &json!({"template": "base"}));
    posted(&a, "/v1/volumes", r#"{"name":"own","size_mb":16}"#);
    let tied = created(&b, &json!({"template": "base", "volumes": [{"name": "own"}]}));
    for id in [&idle, &asleep] {
        b.ok(&["exec", id, "sh", "-c", "echo kept > /tmp/file"]);
    }
    let ran = b.ok(&["exec", "--detach", &asleep, "sh", "-c", "echo ran"]);
    posted(&b, &format!("/v1/sandboxes/{asleep}/hibernate"), "{}");
    posted(&b, &format!("/v1/sandboxes/{idle}/snapshots"), r#"{"name":"golden"}"#);
    let before = b.ask("GET", &format!("/v1/sandboxes/{idle}"), "host: x\r\n", "").json();

    // Only c takes them at first, and the command in the busy one ends before it moves.
    drain(&a, &["b"]);
    let drained = thread::scope(|scope| {
        let command = scope.spawn(|| b.output(&["exec", &busy, "sh", "-c", "echo begun; sleep 8; echo done"]));
        let drained = scope.spawn(|| b.output(&["fleet", "drain", "a"]));
        wait_for("the sleeping one has moved", || status(&b, "a")["drain"]["moved"].as_u64() >= Some(1));
        let text = b.ok(&["fleet", "status"]);
        assert!(text.contains("draining: ") && text.contains("left: "), "{text}");
        // Meanwhile requests wait or are answered by the new node.
        assert_eq!(a.ok(&["exec", "web", "cat", "/tmp/file"]), "kept");
        let command = command.join().unwrap();
        assert_eq!(String::from_utf8_lossy(&command.stdout), "begun\ndone\n", "{command:?}");
        drained.join().unwrap()
    });
    refused(&drained, "1 sandbox cannot leave node a: it has a volume (1)");
    let progress = status(&b, "a")["drain"].clone();
    assert_eq!(progress["moved"], 4, "{progress}");
    assert!(under_way(&a).is_empty() && under_way(&c).is_empty());

    // They are what they were, through any node.
    let expected = [idle.clone(), busy.clone(), asleep.clone(), tied.clone()];
    for node in [&a, &b, &c] {
        assert_eq!(node.listed().1, expected);
    }
    for id in [&*idle, "web", &asleep] {
        assert_eq!(b.ok(&["exec", id, "cat", "/tmp/file"]), "kept");
    }
    assert_eq!(b.ok(&["exec", &idle, "printenv", "COLOR"]), "blue");
    assert_eq!(b.ok(&["logs", "--exec", &ran, &asleep]), "ran");
    let after = b.ask("GET", &format!("/v1/sandboxes/{idle}"), "host: x\r\n", "").json();
    for field in ["id", "name", "created_at", "workspace", "labels", "ttl_seconds", "idle_seconds", "memory_mb"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(running_on(&[&a, &b, &c], &idle), ["c"]);
    let snapshots = b.ask("GET", "/v1/snapshots", "host: x\r\n", "").json();
    assert_eq!(
        (&snapshots["snapshots"][0]["name"], &snapshots["snapshots"][0]["node"]),
        (&json!("golden"), &json!("c"))
    );

    // Without the node that created them, and without etcd.
    a.ok(&["rm", &tied]);
    a.kill();
    assert_eq!(b.ok(&["exec", &busy, "echo", "here"]), "here");
    let copy = created(&b, &json!({"from_snapshot": "golden"}));
    assert_eq!(b.ok(&["exec", &copy, "cat", "/tmp/file"]), "kept");
    drop(etcd);
    assert_eq!(b.ok(&["exec", &idle, "cat", "/tmp/file"]), "kept");
}

/// Waits until the only sandbox leaves the source, or also until it has arrived at the target. If that was too fast to be
/// seen, the move is over.
fn wait_for_move(source: &Node, target: &Node, has_arrived: bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let spin_while = |condition: &dyn Fn() -> bool| {
        while condition() {
            assert!(Instant::now() < deadline, "nothing moves");
            thread::yield_now();
        }
    };
    spin_while(&|| under_way(source).is_empty());
    spin_while(&|| has_arrived && !under_way(source).is_empty() && under_way(target).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_a_move_leaves_one_owner() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    drain(&a, &["b"]);
    let id = created(&a, &json!({"template": "base", "ttl_seconds": 3600}));
    let (mut source, mut target) = (&mut a, &mut b);
    for (round, (source_dies, has_arrived)) in [(true, false), (false, true), (true, true)].into_iter().enumerate() {
        source.ok(&["exec", &id, "sh", "-c", &format!("echo {round} >> /tmp/file")]);
        source.ok(&["fleet", "undrain", target.name]);
        source.ok(&["fleet", "drain", "--detach", source.name]);
        wait_for_move(source, target, has_arrived);
        let dying = if source_dies { &mut *source } else { &mut *target };
        dying.kill();
        dying.serve();
        wait_for("the drain has ended", || {
            let drain = status(source, source.name)["drain"].clone();
            drain["left"].as_array().is_some_and(Vec::is_empty)
        });
        let lines: String = (0..=round).map(|round| format!("{round}\n")).collect();
        for node in [&*source, &*target] {
            assert_eq!(format!("{}\n", node.ok(&["exec", &id, "cat", "/tmp/file"])), lines);
            assert_eq!(node.listed().1, std::slice::from_ref(&id));
        }
        assert_eq!(running_on(&[source, target], &id), [target.name]);
        assert!(under_way(source).is_empty() && under_way(target).is_empty());
        std::mem::swap(&mut source, &mut target);
    }
}
