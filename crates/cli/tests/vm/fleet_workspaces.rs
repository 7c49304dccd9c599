//! What a workspace has on several nodes: its audit log, its settings, its preview tokens.

use std::time::Duration;

use serde_json::{Value, json};

use crate::etcd_server::EtcdServer;
use crate::fleet::{Answer, Node, drain, start_fleet, wait_for};

fn send(node: &Node, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    node.ask(method, path, "host: x\r\n", &body)
}

#[track_caller]
fn ok(node: &Node, method: &str, path: &str, body: &Value) -> Value {
    let answer = send(node, method, path, body);
    assert!(answer.head.starts_with("http/1.1 2"), "{method} {path}: {}\n{}", answer.head, answer.body);
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

#[track_caller]
fn get(node: &Node, path: &str) -> Value {
    ok(node, "GET", path, &Value::Null)
}

fn status(node: &Node, method: &str, path: &str) -> String {
    send(node, method, path, &Value::Null).head[9..12].to_owned()
}

/// A sandbox on one of two nodes, created through the other one.
fn create_on(node: &Node, other: &Node) -> String {
    drain(node, &[other.name]);
    let id = other.create("");
    drain(node, &[]);
    id
}

fn creates(log: &Value) -> Vec<(String, String)> {
    let items = log["items"].as_array().unwrap().iter();
    let creates = items.filter(|entry| entry["action"] == "sandbox.create");
    creates
        .map(|entry| ["node", "object"].map(|field| entry[field].as_str().unwrap_or_default().to_owned()).into())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_shows_the_audit_log_of_all() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let of_b = create_on(&b, &a);
    let of_a = create_on(&a, &b);
    let expected = vec![("b".to_owned(), of_b.clone()), ("a".to_owned(), of_a.clone())];
    let logs = [&a, &b].map(|node| get(node, "/v1/audit?limit=1000"));
    for log in &logs {
        assert_eq!(creates(log), expected);
        let times: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["time"].clone()).collect();
        assert!(times.is_sorted_by_key(|time| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap()), "{times:?}");
    }
    assert_eq!(logs[0], logs[1]);

    // Pages through any node have everything once.
    let (mut read, mut next) = (Vec::new(), "0.a.0.b.0".to_owned());
    for node in [&a, &b].into_iter().cycle() {
        let page = get(node, &format!("/v1/audit?limit=1&after={next}"));
        page["next"].as_str().unwrap().clone_into(&mut next);
        match &page["items"].as_array().unwrap()[..] {
            [] => break,
            [one] => read.push(one.clone()),
            more => panic!("{more:?}"),
        }
    }
    assert_eq!(&read, logs[0]["items"].as_array().unwrap());
    ok(&a, "DELETE", &format!("/v1/sandboxes/{of_b}"), &Value::Null);
    let page = get(&b, &format!("/v1/audit?after={next}"));
    let new: Vec<_> = page["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(new, ["sandbox.delete"]);
    page["next"].as_str().unwrap().clone_into(&mut next);
    let refused = send(&a, "GET", "/v1/audit?after=5", &Value::Null);
    assert!(refused.head.starts_with("http/1.1 400") && refused.body.contains("next"), "{}", refused.body);
    let own = get(&a, "/v1/audit?node=b&after=0&limit=1");
    assert_eq!(own["items"][0]["number"], read.iter().find(|entry| entry["node"] == "b").unwrap()["number"]);

    // What was recorded is read from the node that has it.
    ok(&b, "PATCH", "/v1/workspaces/default", &json!({"record_runs": true}));
    ok(&b, "POST", &format!("/v1/sandboxes/{of_a}/exec"), &json!({"cmd": "echo recorded"}));
    let log = get(&b, "/v1/audit?limit=1000");
    let mut runs = log["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == "run.recorded");
    let run = runs.next_back().unwrap();
    assert_eq!((&run["node"], &run["recorded"]), (&json!("a"), &json!(true)));
    for query in ["", "?node=a"] {
        let recording = get(&b, &format!("/v1/audit/{}/recording{query}", run["number"]));
        assert_eq!((&recording["code"], &recording["output"]), (&json!("echo recorded"), &json!("recorded\n")));
    }
    assert_eq!(status(&b, "GET", "/v1/audit/999999/recording"), "404");
    let chains = get(&a, "/v1/audit/verify")["chains"].clone();
    let chains = chains.as_array().unwrap();
    assert!(chains.iter().all(|chain| chain["broken"].is_null()), "{chains:?}");
    assert!(["a", "b"].iter().all(|node| chains.iter().any(|chain| chain["node"] == *node)), "{chains:?}");
    let shown = b.ok(&["audit", "--node", "a"]);
    assert!(shown.contains("run.recorded (recorded)"), "{shown}");

    // A node that does not answer is named, and what it has comes later.
    let position = get(&a, &format!("/v1/audit?after={next}"))["next"].as_str().unwrap().to_owned();
    ok(&b, "PATCH", "/v1/workspaces/default", &json!({"record_runs": false}));
    b.kill();
    let partial = send(&a, "GET", &format!("/v1/audit?after={position}"), &Value::Null);
    assert!(partial.head.contains("sandling-partial: b") && partial.json()["items"] == json!([]), "{}", partial.head);
    b.serve();
    let next = partial.json()["next"].as_str().unwrap().to_owned();
    wait_for("the entry of b", || {
        let items = get(&a, &format!("/v1/audit?after={next}"))["items"].clone();
        items.as_array().unwrap().iter().any(|entry| entry["action"] == "workspace.change" && entry["node"] == "b")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_sets_for_a_workspace_holds_on_all() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    // What this machine has set before it joins.
    c.serve();
    ok(&c, "PUT", "/v1/workspaces/default/quota", &json!({"sandboxes": 5}));
    ok(&c, "PUT", "/v1/network", &json!({"allow": ["pypi"]}));
    let secret = |value: &str| json!({"value": value, "hosts": ["api.example.com"]});
    ok(&c, "PUT", "/v1/secrets/OWN", &secret("of c"));
    c.kill();

    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let limit = |node: &Node| get(node, "/v1/workspaces/default/quota")["limits"]["sandboxes"].clone();
    let policy = |node: &Node| get(node, "/v1/network")["policy"]["allow"].clone();
    let secrets = |node: &Node| {
        let all = get(node, "/v1/secrets")["secrets"].clone();
        all.as_array().unwrap().iter().map(|secret| secret["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let recorded = |node: &Node| {
        let all = get(node, "/v1/workspaces")["items"].clone();
        all.as_array().unwrap().iter().find(|workspace| workspace["name"] == "default").unwrap()["record_runs"] == true
    };
    for (at, (one, other)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
        ok(one, "PUT", "/v1/workspaces/default/quota", &json!({"sandboxes": 30 + at}));
        assert_eq!(limit(other), 30 + at);
        let name = format!("SHARED_{at}");
        ok(one, "PUT", &format!("/v1/secrets/{name}"), &secret("value"));
        assert!(secrets(other).contains(&name));
        ok(one, "PATCH", "/v1/workspaces/default", &json!({"record_runs": at == 0}));
        assert_eq!(recorded(other), at == 0);
        ok(one, "PUT", "/v1/templates/base/network", &json!({"allow": ["npm"]}));
        assert_eq!(get(other, "/v1/templates/base/network")["policy"]["allow"], json!(["npm"]));
        ok(one, "DELETE", "/v1/templates/base/network", &Value::Null);
        assert_ne!(get(other, "/v1/templates/base/network")["policy"]["allow"], json!(["npm"]));
    }
    ok(&a, "DELETE", "/v1/secrets/SHARED_0", &Value::Null);
    assert_eq!(secrets(&b), ["SHARED_1"]);

    // A machine that joins gives way to what the fleet has set, and shares the rest.
    c.join(&a, &a.ok(&["fleet", "token"]));
    c.serve();
    wait_for("c has what the fleet has set", || limit(&c) == 31 && secrets(&c) == ["OWN", "SHARED_1"]);
    for node in [&a, &b] {
        let has_both = || policy(node) == json!(["pypi"]) && secrets(node) == ["OWN", "SHARED_1"];
        wait_for("the fleet has what only c had set", has_both);
        assert_eq!(limit(node), 31);
    }
    // A node that was off learns what has changed.
    c.kill();
    ok(&b, "PUT", "/v1/workspaces/default/quota", &json!({"sandboxes": 40}));
    ok(&b, "DELETE", "/v1/network", &Value::Null);
    c.serve();
    wait_for("c has heard of it", || limit(&c) == 40 && policy(&c) != json!(["pypi"]));

    // Without etcd, a change still reaches the nodes that answer. It is not forgotten when a node restarts.
    drop(etcd);
    ok(&c, "PUT", "/v1/workspaces/default/quota", &json!({"sandboxes": 41}));
    assert_eq!((limit(&a), limit(&b)), (json!(41), json!(41)));
    b.kill();
    b.serve();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(limit(&b), 41);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_for_all_nodes_together() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    start_fleet(&etcd, &mut [&mut a, &mut b, &mut c]);
    let quota = |limits: &Value| drop(ok(&a, "PUT", "/v1/workspaces/default/quota", limits));
    let create = |node: &Node| node.post("/v1/sandboxes", r#"{"template":"base"}"#);
    let used = |node: &Node| get(node, "/v1/quota")["used"]["sandboxes"].clone();
    let refused = |answer: &Answer| answer.head.starts_with("http/1.1 429") && answer.body.contains("quota_exceeded");
    quota(&json!({"sandboxes": 2}));
    drain(&a, &["a", "c"]);
    let first = a.create("");
    drain(&a, &["a", "b"]);
    c.create("");
    drain(&a, &[]);
    for node in [&a, &b, &c] {
        assert_eq!(used(node), 2);
        let answer = create(node);
        assert!(
            refused(&answer) && answer.body.contains("max sandboxes reached: the limit is 2, 2 in use"),
            "{}",
            answer.body
        );
        assert!(!answer.head.contains("retry-after"), "{}", answer.head);
    }
    // What is free again, any node can use at once, and only one of several does.
    ok(&c, "DELETE", &format!("/v1/sandboxes/{first}"), &Value::Null);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let creates: Vec<_> =
            [&a, &b, &c].into_iter().cycle().take(6).map(|node| scope.spawn(|| create(node))).collect();
        creates.into_iter().map(|create| create.join().unwrap()).collect()
    });
    let created = answers.iter().filter(|answer| answer.head.starts_with("http/1.1 201")).count();
    assert!(
        created <= 1
            && answers
                .iter()
                .all(|answer| answer.head.starts_with("http/1.1 201") || answer.head.starts_with("http/1.1 429"))
    );
    if created == 0 {
        b.create("");
    }
    assert_eq!(used(&a), 2);

    quota(&json!({"sandboxes": null, "creates_per_minute": 1}));
    let answer = create(&b);
    assert!(refused(&answer), "{}", answer.body);
    let wait = answer.head.split("retry-after: ").nth(1).unwrap().split("\r\n").next().unwrap();
    assert!((1..=60).contains(&wait.parse::<u64>().unwrap()), "{wait}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_token_is_revoked_through_any_node() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let id = create_on(&b, &a);
    let issue = || ok(&a, "POST", &format!("/v1/sandboxes/{id}/preview-token"), &json!({"port": 9}));
    for by in ["id", "token"] {
        let token = issue();
        let link = format!("/v1/p/{}/", token["token"].as_str().unwrap());
        // Nothing listens there.
        assert_eq!((status(&a, "GET", &link), status(&b, "GET", &link)), ("502".to_owned(), "502".to_owned()));
        let revoke = format!("/v1/preview-tokens/{}", token[by].as_str().unwrap());
        assert_eq!(status(&a, "DELETE", &revoke), "204");
        assert_eq!((status(&a, "GET", &link), status(&b, "GET", &link)), ("401".to_owned(), "401".to_owned()));
        assert_eq!(
            (status(&a, "DELETE", &revoke), status(&b, "DELETE", &revoke)),
            ("404".to_owned(), "404".to_owned())
        );
    }
}
