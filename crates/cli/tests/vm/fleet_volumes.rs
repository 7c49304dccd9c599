//! Volumes are copied to other nodes, whole or not at all.

use std::fs;
use std::process::Child;

use serde_json::{Value, json};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, refused, start_fleet, wait_for};

const COPY: [&str; 6] = ["volume", "clone", "data", "copy", "--node", "b"];

/// How many files are where a node's volumes are.
fn files(node: &Node) -> usize {
    fs::read_dir(node.home.path().join("volumes")).into_iter().flatten().count()
}

/// The names of the volumes that a node has, oldest first.
fn names(through: &Node, node: &str) -> Vec<String> {
    let listed: Vec<Value> = serde_json::from_str(&through.ok(&["volume", "ls", "--json"])).unwrap();
    let own = listed.iter().filter(|volume| volume["node"] == node);
    own.map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
}

fn volume(through: &Node, name: &str) -> Value {
    through.ask("GET", &format!("/v1/volumes/{name}"), "host: x\r\n", "").json()
}

/// The command line says that the copy has failed.
#[track_caller]
fn cut_off(copying: Child) {
    let output = copying.wait_with_output().unwrap();
    assert!(!output.status.success(), "the copy was complete too soon");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_a_sandbox_writes_is_copied_to_another_node() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    a.ok(&["volume", "create", "data", "--size", "64"]);
    let writer = b.ok(&["create", "-t", "base", "--volume", "data:/data"]);
    let write = "head -c 5000000 /dev/urandom > /data/bytes; echo first > /data/file; sha256sum < /data/bytes";
    let sum = a.ok(&["exec", &writer, "sh", "-c", write]);

    // Either node takes the request.
    a.ok(&["volume", "clone", "data", "one", "--node", "b"]);
    a.ok(&["exec", &writer, "sh", "-c", "echo second > /data/file"]);
    b.ok(&["volume", "clone", "data", "two", "--node", "b"]);
    assert_eq!(names(&a, "b"), ["one", "two"]);
    assert_eq!(volume(&a, "one")["from"], "data");
    let mounts = ["--volume", "one:/one", "--volume", "two:/two:ro"];
    let reader = a.ok(&[&["create", "-t", "base"][..], &mounts].concat());
    assert_ne!(reader[28..], writer[28..], "on the other node");
    let read = "cat /one/file /two/file; sha256sum < /one/bytes; sha256sum < /two/bytes; echo changed > /one/file";
    assert_eq!(a.ok(&["exec", &reader, "sh", "-c", read]), format!("first\nsecond\n{sum}\n{sum}"));

    // The volume is as it was, and in use as before.
    assert_eq!(b.ok(&["exec", &writer, "cat", "/data/file"]), "second");
    assert_eq!(volume(&b, "data")["attached_to"], json!([{ "sandbox_id": writer, "read_only": false }]));

    // The node that has the volume copies it itself, and one that is read can be copied, too.
    b.ok(&["volume", "clone", "data", "near", "--node", "a"]);
    a.ok(&["volume", "clone", "two", "back", "--node", "a"]);
    assert_eq!(names(&b, "a"), ["data", "near", "back"]);

    let clone = |through: &Node, name: &str, copy: &str, node: &str| {
        through.output(&["volume", "clone", name, copy, "--node", node])
    };
    refused(&clone(&a, "data", "two", "a"), "there is a volume \"two\" already");
    refused(&a.output(&["volume", "clone", "data", "two"]), "there is a volume \"two\" already");
    refused(&clone(&a, "data", "three", "c"), "the fleet has no node `c` now; its nodes are a, b");
    refused(&clone(&a, "none", "three", "b"), "there is no volume \"none\"");
    refused(&clone(&b, "data", "a/b", "b"), "a volume's name has");
    assert_eq!((files(&a), files(&b)), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_loses_one_of_its_nodes_leaves_nothing_on_the_other() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    a.ok(&["volume", "create", "data", "--size", "256"]);
    let writer = a.ok(&["create", "-t", "base", "--volume", "data:/data"]);
    a.ok(&["exec", &writer, "sh", "-c", "head -c 200000000 /dev/urandom > /data/bytes"]);
    a.ok(&["rm", &writer]);
    let copying = a.command(&COPY).spawn().unwrap();
    wait_for("the first bytes have arrived", || files(&b) > 0);
    b.kill();
    cut_off(copying);
    wait_for("a has dropped what it was about to send", || files(&a) == 1);
    b.serve();
    wait_for("b finds the volume", || b.output(&["volume", "inspect", "data"]).status.success());
    assert!(names(&b, "b").is_empty());

    // A server that was killed leaves a part of a file until a later start.
    let before = files(&b);
    let copying = b.command(&COPY).spawn().unwrap();
    wait_for("the first bytes have arrived", || files(&b) > before);
    a.kill();
    cut_off(copying);
    assert_eq!(files(&b), before, "b has dropped what has arrived");
    a.serve();
    wait_for("the copy succeeds", || b.output(&COPY).status.success());
    assert_eq!((files(&b), files(&a)), (before + 1, 1));
}
