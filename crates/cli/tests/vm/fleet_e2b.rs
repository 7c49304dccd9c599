//! E2B's requests through any node of a fleet.

use serde_json::{Value, json};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Answer, Node, drain, start_fleet, wait_for};

/// Any text of this form names uploaded files.
const HASH: &str = "0000000000000000000000000000000000000000000000000000000000000001";

#[track_caller]
fn succeeded(answer: &Answer) -> Value {
    assert!(answer.head.starts_with("http/1.1 20"), "{}\n{}", answer.head, answer.body);
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

#[track_caller]
fn get(node: &Node, path: &str) -> Value {
    succeeded(&node.ask("GET", path, "host: x\r\n", ""))
}

#[track_caller]
fn post(node: &Node, path: &str, body: Value) -> Value {
    succeeded(&node.post(path, &body.to_string()))
}

fn exists(node: &Node, name: &str) -> bool {
    let answer = node.ask("GET", &format!("/templates/aliases/{name}"), "host: x\r\n", "");
    assert!(answer.head.starts_with("http/1.1 200") || answer.head.starts_with("http/1.1 404"), "{}", answer.head);
    answer.head.starts_with("http/1.1 200")
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

fn all(list: &Value, field: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| text(item, field)).collect()
}

fn create(node: &Node, template: &str) -> Value {
    post(node, "/sandboxes", json!({"templateID": template}))
}

/// The node of a sandbox, as its id says.
fn node_of(sandbox: &Value) -> String {
    text(sandbox, "sandboxID")[24..].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_has_is_there_for_e2bs_clients_of_all() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let on = |drained: &str| {
        drain(&a, &[drained]);
        let made = create(&a, "base");
        drain(&a, &[]);
        made
    };
    let (on_b, on_a) = (on("a"), on("b"));
    assert_ne!(node_of(&on_a), node_of(&on_b));
    let ids = [&on_a, &on_b].map(|sandbox| text(sandbox, "sandboxID"));
    let samples = get(&a, &format!("/sandboxes/metrics?sandbox_ids={},{}", ids[0], ids[1]));
    assert!(ids.iter().all(|id| samples["sandboxes"][id]["memTotal"].is_u64()), "{samples}");

    snapshots_have_one_list_and_a_name_is_the_newest(&a, &b, &on_a, &on_b);
    builds_and_tags_are_on_the_node_that_has_the_name(&a, &b, &node_of(&on_b));
    volumes_are_read_through_any_node(&a, &b);

    // The token alone says which sandbox is meant.
    let header = format!("host: x\r\nx-access-token: {}\r\n", text(&on_b, "envdAccessToken"));
    let read = a.ask("GET", "/files?path=/etc/hostname&username=root", &header, "");
    assert!(read.head.starts_with("http/1.1 200"), "{}\n{}", read.head, read.body);
    let wrong = a.ask("GET", "/files?path=/etc/hostname", "host: x\r\nx-access-token: x.y\r\n", "");
    assert!(wrong.head.starts_with("http/1.1 4"), "{}\n{}", wrong.head, wrong.body);
}

fn snapshots_have_one_list_and_a_name_is_the_newest(a: &Node, b: &Node, on_a: &Value, on_b: &Value) {
    let save = |node: &Node, sandbox: &Value, body: Value| {
        text(&post(node, &format!("/sandboxes/{}/snapshots", text(sandbox, "sandboxID")), body), "snapshotID")
    };
    let older = save(a, on_b, json!({"name": "golden"}));
    assert_eq!(node_of(&create(a, "golden")), node_of(on_b));
    let newer = save(b, on_a, json!({"name": "golden"}));
    let plain = save(a, on_b, json!({}));
    assert_eq!((&*older, &*newer), ("golden:default", "golden:default"));
    for node in [a, b] {
        assert_eq!(all(&get(node, "/snapshots"), "snapshotID"), [&*plain, &*newer]);
        let first = node.ask("GET", "/snapshots?limit=1", "host: x\r\n", "");
        let next = first.head.lines().find_map(|line| line.strip_prefix("x-next-token: ")).unwrap();
        assert_eq!(all(&first.json(), "snapshotID"), [&*plain]);
        assert_eq!(all(&get(node, &format!("/snapshots?limit=1&nextToken={next}")), "snapshotID"), [&*newer]);
        assert_eq!(node_of(&create(node, "golden")), node_of(on_a), "the newest");
        assert_eq!(node_of(&create(node, &plain)), node_of(on_b));
        assert!(exists(node, "golden") && !exists(node, "golden:other"));
    }
    for id in [&plain, &newer] {
        let path = format!("/templates/{id}");
        succeeded(&a.ask("DELETE", &path, "host: x\r\n", ""));
        assert!(a.ask("DELETE", &path, "host: x\r\n", "").head.starts_with("http/1.1 404"));
    }
    assert!(!exists(a, "golden") && !exists(b, "golden"), "on both nodes");
    assert_eq!(get(a, "/snapshots"), json!([]));
}

fn builds_and_tags_are_on_the_node_that_has_the_name(a: &Node, b: &Node, tag_of_b: &str) {
    let build = text(&post(b, "/v3/templates", json!({"name": "mine"})), "buildID");
    let second = text(&post(a, "/v3/templates", json!({"name": "mine:next"})), "buildID");
    for (node, id) in [(a, &build), (b, &second), (a, &second)] {
        assert_eq!(get(node, &format!("/templates/mine/builds/{id}/status"))["status"], "waiting");
    }
    let link = get(a, &format!("/templates/mine/files/{HASH}"));
    let url = text(&link, "url");
    let path = &url[url.find("/templates").unwrap()..];
    let refused = a.ask("PUT", &format!("{path}0"), "host: x\r\nauthorization: none\r\n", "files");
    assert!(refused.head.starts_with("http/1.1 401"), "{}\n{}", refused.head, refused.body);
    succeeded(&a.ask("PUT", path, "host: x\r\nauthorization: none\r\n", "files"));
    assert_eq!(
        (&link["present"], &get(b, &format!("/templates/mine/files/{HASH}"))["present"]),
        (&json!(false), &json!(true))
    );

    let steps = json!({"fromTemplate": "base", "steps": [{"type": "RUN", "args": ["echo built >/tmp/built", "root"]}]});
    let begun = a.post(&format!("/v2/templates/mine/builds/{build}"), &steps.to_string());
    assert!(begun.head.starts_with("http/1.1 202"), "{}\n{}", begun.head, begun.body);
    let mut status = Value::Null;
    wait_for("the build ends", || {
        status = get(a, &format!("/templates/mine/builds/{build}/status"));
        !matches!(status["status"].as_str(), Some("waiting" | "building"))
    });
    assert_eq!(status["status"], "ready", "{status}");
    post(a, "/templates/tags", json!({"target": "mine", "tags": ["v1"]}));
    for node in [a, b] {
        let mut tags = all(&get(node, "/templates/mine/tags"), "tag");
        tags.sort();
        assert_eq!(tags, ["default", "v1"]);
        assert_eq!(get(node, "/templates/mine")["templateID"], "mine");
        for path in ["/templates", "/v2/templates"] {
            let names = all(&get(node, path), "templateID");
            let count = |name: &str| names.iter().filter(|listed| *listed == name).count();
            assert_eq!((count("mine"), count("base")), (1, 1), "{names:?}");
        }
    }
    let made = create(a, "mine:v1");
    assert_eq!(node_of(&made), tag_of_b);
    assert_eq!(a.ok(&["exec", &text(&made, "sandboxID"), "cat", "/tmp/built"]), "built");
    let untag = a.ask("DELETE", "/templates/tags", "host: x\r\n", r#"{"name":"mine","tags":["v1"]}"#);
    assert!(untag.head.starts_with("http/1.1 204"), "{}\n{}", untag.head, untag.body);
    assert!(exists(a, "mine") && !exists(a, "mine:v1"));
}

fn volumes_are_read_through_any_node(a: &Node, b: &Node) {
    let volume = post(b, "/volumes", json!({"name": "data"}));
    let id = text(&volume, "volumeID");
    let found = get(a, &format!("/volumes/{id}"));
    let token = format!("host: x\r\nauthorization: Bearer {}\r\n", text(&found, "token"));
    let path = format!("/volumecontent/{id}/file?path=/kept");
    succeeded(&a.ask("PUT", &path, &token, "from outside"));
    for node in [a, b] {
        assert_eq!(node.ask("GET", &path, &token, "").body, "from outside");
        assert_eq!(all(&get(node, "/volumes"), "volumeID"), [&*id]);
    }
    let other = "host: x\r\nauthorization: Bearer environment.1.00\r\n";
    assert!(a.ask("GET", &path, other, "").head.starts_with("http/1.1 401"));
    succeeded(&a.ask("DELETE", &format!("/volumes/{id}"), "host: x\r\n", ""));
    assert!(a.ask("GET", &format!("/volumes/{id}"), "host: x\r\n", "").head.starts_with("http/1.1 404"));
}
