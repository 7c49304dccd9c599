//! Nodes copy templates from each other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;
use crate::fleet::{Answer, Node, PATIENCE, refused, start_fleet, wait_for};

#[track_caller]
pub(crate) fn json_of(answer: &Answer, status: &str) -> Value {
    assert!(answer.head.starts_with(&format!("http/1.1 {status}")), "{}\n{}", answer.head, answer.body);
    answer.json()
}

#[track_caller]
pub(crate) fn posted(node: &Node, token: &str, path: &str, body: &Value) -> Value {
    json_of(&node.ask("POST", path, token, &body.to_string()), "20")
}

pub(crate) const OPERATOR: &str = "host: x\r\n";

/// A template that was made from a snapshot of a sandbox with a file.
fn template_from_sandbox(node: &Node, token: &str, name: &str) {
    let sandbox = posted(node, token, "/v1/sandboxes", &json!({"template": "base"}));
    let path = format!("/v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
    posted(node, token, &format!("{path}/exec"), &json!({"cmd": format!("echo {name} > /root/file; sync")}));
    let snapshot = posted(node, token, &format!("{path}/snapshots"), &json!({}));
    let snapshot = format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap());
    posted(node, token, &format!("{snapshot}/template"), &json!({"name": name}));
    for path in [snapshot, path] {
        let deleted = node.ask("DELETE", &path, token, "");
        assert!(deleted.head.starts_with("http/1.1 20"), "{}\n{}", deleted.head, deleted.body);
    }
}

/// What a command prints in a new sandbox of a template.
#[track_caller]
pub(crate) fn ran_in(node: &Node, token: &str, template: &str, command: &str) -> (Value, String) {
    let sandbox = posted(node, token, "/v1/sandboxes", &json!({"template": template}));
    let path = format!("/v1/sandboxes/{}/exec", sandbox["id"].as_str().unwrap());
    let ran = posted(node, token, &path, &json!({"cmd": command}));
    (sandbox, ran["stdout"].as_str().unwrap().trim().to_owned())
}

/// The nodes that have a template, as `template ls` shows them.
fn nodes_with(through: &Node, name: &str) -> Vec<String> {
    let listed: Vec<Value> = serde_json::from_str(&through.ok(&["template", "ls", "--json"])).unwrap();
    let found = listed.iter().find(|template| template["name"] == name);
    let nodes = found.and_then(|template| template["nodes"].as_array().cloned()).unwrap_or_default();
    nodes.iter().map(|node| node.as_str().unwrap().to_owned()).collect()
}

/// What the files below a directory take.
fn stored_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| {
        let below = entry.path();
        let own = entry.metadata().map_or(0, |found| if found.is_file() { found.blocks() * 512 } else { 0 });
        own + stored_bytes(&below)
    };
    entries.map(bytes).sum()
}

fn assert_no_template(templates: &Path) {
    for kind in ["images", "names", "roots", "kernels", "initrds", "scratch"] {
        let left: Vec<_> = fs::read_dir(templates.join(kind)).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn copies(node: &Node) -> Vec<Value> {
    let text = fs::read_to_string(node.home.path().join("fleet/copies.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["copies"].as_array().unwrap().clone()
}

/// A node without templates.
pub(crate) fn empty_node(name: &'static str) -> (Node, TempDir) {
    let (mut node, templates) = (Node::new(name), TempDir::new().unwrap());
    let path = templates.path().to_str().unwrap().to_owned();
    node.variables = vec![("SANDLING_TEMPLATES", &*path.leak()), ("SANDLING_LOG", "sandling_api=info")].leak();
    (node, templates)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_pulls_templates_whole_or_not_at_all_and_needs_their_node_no_more() {
    let etcd = EtcdServer::start().await.unwrap();
    let mut a = Node::new("a");
    let (mut b, templates) = empty_node("b");
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    posted(&a, OPERATOR, "/v1/workspaces", &json!({"name": "team"}));
    let token = posted(&a, OPERATOR, "/v1/workspaces/team/tokens", &json!({"scope": "run"}));
    let team = format!("host: x\r\nauthorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    wait_for("b knows the token", || b.ask("GET", "/v1/sandboxes", &team, "").head.starts_with("http/1.1 200"));
    template_from_sandbox(&a, &team, "private");

    // A workspace gets its own templates, and no others.
    refused(&b.output(&["template", "pull", "private"]), "no other node has a template `private`");
    refused(&b.output(&["template", "pull", "base", "--from", "c"]), "the fleet has no other node c now");
    let built_in = b.ask("POST", "/v1/templates/base/pull", &team, "");
    assert!(built_in.head.starts_with("http/1.1 403"), "{}\n{}", built_in.head, built_in.body);
    let pull = posted(&b, &team, "/v1/templates/private/pull", &json!({"from": "a"}));
    let pull = format!("/v1/templates/builds/{}", pull["id"].as_str().unwrap());
    wait_for("it is copied", || {
        let pull = json_of(&b.ask("GET", &pull, &team, ""), "200");
        assert_ne!(pull["status"], "failed", "{pull}");
        pull["status"] == "done"
    });
    assert_no_template(templates.path());

    // The other node dies while it sends.
    let cut_off = thread::scope(|scope| {
        let pulling = scope.spawn(|| b.output(&["template", "pull", "base"]));
        let deadline = Instant::now() + PATIENCE;
        while stored_bytes(&templates.path().join("scratch")) < 8 << 20 {
            assert!(Instant::now() < deadline && !pulling.is_finished(), "nothing arrives");
            thread::yield_now();
        }
        a.kill();
        pulling.join().unwrap()
    });
    refused(&cut_off, "nothing was stored");
    assert_no_template(templates.path());
    let of_team = |copies: &[Value]| copies.len() == 1 && copies[0]["workspace"] == "team";
    assert!(of_team(&copies(&b)), "{:?}", copies(&b));
    a.serve();
    wait_for("a is back", || b.states().len() == 2 && nodes_with(&b, "base") == ["a"]);

    // A create is placed where the template is, until this node has it, too.
    let (on_a, _) = ran_in(&b, OPERATOR, "base", "true");
    let pulled = b.output(&["template", "pull", "base"]);
    assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
    assert!(String::from_utf8_lossy(&pulled.stdout).contains("base is ready: "), "{pulled:?}");
    assert_eq!(nodes_with(&a, "base"), ["a", "b"]);
    let again = b.output(&["template", "pull", "base"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    a.ok(&["rm", "--all"]);

    // Without the node that they come from.
    a.kill();
    wait_for("a is no member", || b.states().len() == 1);
    let (on_b, _) = ran_in(&b, OPERATOR, "base", "true");
    let [on_a, on_b] = [&on_a, &on_b].map(|sandbox| sandbox["id"].as_str().unwrap());
    assert_ne!(on_a[28..], on_b[28..]);
    let code = json!({"code": "print(6 * 7)"});
    let ran = posted(&b, OPERATOR, &format!("/v1/sandboxes/{on_b}/run-code"), &code);
    assert!(ran.to_string().contains("42"), "{ran}");
    let (of_team, file) = ran_in(&b, &team, "private", "cat /root/file");
    assert_eq!(file, "private");
    b.ask("DELETE", &format!("/v1/sandboxes/{}", of_team["id"].as_str().unwrap()), &team, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_in_use_are_copied_in_the_background_and_deleted_ones_do_not_come_back() {
    let etcd = EtcdServer::start().await.unwrap();
    let mut a = Node::new("a");
    let (mut b, _templates) = empty_node("b");
    // Other templates of the tests are large.
    (a.serve_options, b.serve_options) = (&["--pull-templates"], &["--pull-templates=base,mine,other"]);
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    template_from_sandbox(&a, OPERATOR, "mine");
    template_from_sandbox(&a, OPERATOR, "other");
    wait_for("b has copies", || ["base", "mine", "other"].iter().all(|name| nodes_with(&a, name) == ["a", "b"]));
    assert!(copies(&b).iter().all(|copy| copy["from"] == "a" && copy["state"] == "follows"));

    // A copy that is removed is not made again, and one whose template is deleted goes.
    let removed = b.output(&["template", "rm", "other"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    a.ok(&["template", "rm", "mine"]);
    wait_for("mine is gone", || nodes_with(&a, "mine").is_empty());
    wait_for("b remembers that other was removed", || {
        copies(&b).iter().any(|copy| copy["name"] == "other" && copy["state"] == "removed")
    });
    assert_eq!(nodes_with(&a, "other"), ["a"]);
    assert!(!a.home.path().join("fleet/copies.json").exists(), "a has copied nothing back");

    // With the other node away, this one takes creates of what it has copied.
    a.kill();
    wait_for("a is no member", || b.states().len() == 1);
    assert_eq!(ran_in(&b, OPERATOR, "base", "echo here").1, "here");
}
