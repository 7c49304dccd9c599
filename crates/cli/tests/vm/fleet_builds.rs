//! Builds of templates through any node of a fleet.

use std::fs;

use serde_json::{Value, json};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Node, start_fleet};
use crate::fleet_pulls::{OPERATOR, empty_node, json_of, posted, ran_in};

const BUILD: &str = "/v1/templates/build";
const BUILDS: &str = "/v1/templates/builds";
/// Any text of this form names uploaded files.
const HASH: &str = "00000000000000000000000000000001";

/// Uploads a directory with the file `page`.
#[track_caller]
fn upload(node: &Node, page: &str) {
    let (mut archive, mut header) = (tar::Builder::new(Vec::new()), tar::Header::new_gnu());
    header.set_size(page.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "page", page.as_bytes()).unwrap();
    let archive = String::from_utf8(archive.into_inner().unwrap()).unwrap();
    let stored = node.ask("PUT", &format!("{BUILDS}/uploads/{HASH}"), OPERATOR, &archive);
    assert!(stored.head.starts_with("http/1.1 204"), "{}\n{}", stored.head, stored.body);
}

fn uploads(node: &Node) -> usize {
    fs::read_dir(node.home.path().join("uploads")).map_or(0, Iterator::count)
}

/// Starts a build through a node. Returns its id.
#[track_caller]
fn begin(node: &Node, build: &Value) -> String {
    posted(node, OPERATOR, BUILD, build)["id"].as_str().unwrap().to_owned()
}

/// Follows the log of a build that succeeds.
#[track_caller]
fn follow(node: &Node, id: &str) -> String {
    let log = node.ask("GET", &format!("{BUILDS}/{id}/logs?follow=true"), OPERATOR, "");
    assert!(log.head.starts_with("http/1.1 200") && log.body.contains("event: done"), "{}\n{}", log.head, log.body);
    let build = json_of(&node.ask("GET", &format!("{BUILDS}/{id}"), OPERATOR, ""), "200");
    assert_eq!(build["status"], "done", "{build}\n{}", log.body);
    log.body
}

#[track_caller]
fn refused(node: &Node, build: &Value, why: &str) {
    let answer = node.ask("POST", BUILD, OPERATOR, &build.to_string());
    assert!(answer.head.starts_with("http/1.1 4") && answer.body.contains(why), "{}\n{}", answer.head, answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_runs_where_its_name_or_its_bases_are_and_every_node_knows_it() {
    let etcd = EtcdServer::start().await.unwrap();
    let mut a = Node::new("a");
    let (mut b, _templates) = empty_node("b");
    start_fleet(&etcd, &mut [&mut a, &mut b]);

    // Only a has the base, and only b has the files.
    upload(&b, "one\n");
    assert_eq!((uploads(&a), uploads(&b)), (0, 1));
    let site = "FROM base\nCOPY page /srv/page\nRUN echo built $(cat /srv/page)";
    let first = begin(&b, &json!({"name": "site", "dockerfile": site, "context": HASH}));
    assert_eq!(uploads(&b), 0, "a has the files now");
    for node in [&b, &a] {
        let log = follow(node, &first);
        assert!(log.contains("built one"), "{log}");
    }
    assert_eq!(uploads(&a), 0, "the build has used them");

    // What b builds on top of it is built on a, too. The node that gets the request fetches the files if it builds.
    upload(&b, "two\n");
    let second = "FROM site\nCOPY page /srv/second";
    let second = begin(&a, &json!({"name": "second", "dockerfile": second, "context": HASH}));
    follow(&b, &second);
    let alias = begin(&b, &json!({"name": "alias", "image_ref": "site"}));
    follow(&a, &alias);
    assert_eq!(ran_in(&b, OPERATOR, "second", "cat /srv/page /srv/second").1, "one\ntwo");
    assert_eq!(ran_in(&b, OPERATOR, "alias", "cat /srv/page").1, "one");

    let nobodys = json!({"name": "third", "dockerfile": site, "context": HASH});
    for node in [&a, &b] {
        refused(node, &json!({"name": "site", "dockerfile": "FROM base"}), "already");
        refused(node, &json!({"name": "base", "dockerfile": "FROM site"}), "already");
        refused(node, &nobodys, "were not uploaded");
    }

    // A copy of the template does not make b the node that builds it again.
    b.ok(&["template", "pull", "site"]);
    refused(&b, &json!({"name": "site", "dockerfile": "FROM base"}), "already");
    let again = json!({"name": "site", "dockerfile": "FROM base\nRUN echo again > /srv/page", "replace": true});
    follow(&b, &begin(&b, &again));
    for node in [&a, &b] {
        let listed = json_of(&node.ask("GET", BUILDS, OPERATOR, ""), "200");
        let listed = listed.as_array().unwrap().iter().map(|build| (build["name"].as_str(), build["node"].as_str()));
        let expected = [("site", "a"), ("site", "b"), ("alias", "a"), ("second", "a"), ("site", "a")];
        assert!(listed.eq(expected.map(|(name, node)| (Some(name), Some(node)))));
    }
}
