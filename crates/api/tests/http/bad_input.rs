//! What is wrong with a request is said, and is never the server's fault.

use serde_json::{Value, json};

use crate::harness::{Server, TOKEN};

const MISSING: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn a_route_or_method_that_is_not_there_is_refused_flat() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/nothing").await.refusal(), (404, "no_such_route".to_owned()));
    assert_eq!(server.get("/v1/sandboxes/").await.refusal().0, 404);
    assert_eq!(server.call(Some(TOKEN), "PUT", "/v1/me", None).await.refusal(), (405, "no_such_method".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_make_no_sense_are_400() {
    let server = Server::start().await;
    let bodies = [
        json!([]),
        json!("base"),
        json!({ "template": 5 }),
        json!({ "tempalte": "base" }),
        json!({ "ttl_seconds": -1 }),
        json!({ "ttl_seconds": 1e30 }),
        json!({ "ttl_seconds": u64::MAX }),
        json!({ "metadata": { "n": 1 } }),
        json!({ "env": { "A=B": "x" } }),
    ];
    for body in bodies {
        assert_eq!(server.post("/v1/sandboxes", body.clone()).await.refusal().0, 400, "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let head = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: 8589934592\r\n\r\n"
    );
    assert_eq!(server.say(head.as_bytes()).await.status, 413);
    server.stop().await;
}

#[tokio::test]
async fn ids_that_cannot_be_one_are_not_found() {
    let server = Server::start().await;
    for id in ["x", "..", "%2e%2e", "%00", "%0d%0aX-Evil:%201", "%ff%fe", "*", MISSING, &"a".repeat(4000)] {
        for (method, rest) in [
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/lifecycle"),
            ("GET", "/fs?path=/"),
            ("GET", "/proxy/80/"),
            ("GET", "/events"),
        ] {
            let answer = server.call(Some(TOKEN), method, &format!("/v1/sandboxes/{id}{rest}"), None).await;
            assert!([400, 404].contains(&answer.status), "{method} {id}{rest}: {}", answer.status);
            assert_eq!(answer.header("x-evil"), None);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_request_id_is_given_back_unless_it_could_do_harm() {
    let server = Server::start().await;
    let with = async |id: &str| {
        let head = format!("GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\nx-request-id: {id}\r\n\r\n");
        server.say(head.as_bytes()).await.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(with("trace-0123").await, "trace-0123");
    let minted = with("<script>").await;
    assert!(minted.len() == 16 && minted.bytes().all(|byte| byte.is_ascii_hexdigit()), "{minted}");
    server.stop().await;
}

#[tokio::test]
async fn the_same_key_with_another_body_is_told_apart() {
    let server = Server::start().await;
    let post = async |key: &str, body: Value| {
        let body = body.to_string();
        let head = format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        server.say(format!("{head}{body}").as_bytes()).await.refusal()
    };
    let body = json!({ "template": "no-such-template" });
    // A refusal had no effect, so the key is free again.
    for _ in 0..2 {
        assert_eq!(post("k", body.clone()).await, (400, "template_unknown".to_owned()));
    }
    assert_eq!(post("", body).await.0, 400);
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_named_and_so_is_what_there_is() {
    let server = Server::start().await;
    let refused = server.post("/v1/sandboxes", json!({ "template": "pythn" })).await.json();
    let why = refused["error"].as_str().unwrap();
    assert!(why.starts_with("there is no template \"pythn\"; there are ") && why.contains("base"), "{why}");
    let path = "/v1/volumes/dta";
    let copied = server.post(&format!("{path}/clone"), json!({ "name": "copy" })).await;
    for missing in [server.get(path).await, copied, server.call(Some(TOKEN), "DELETE", path, None).await] {
        assert_eq!(missing.refusal(), (404, "not_found".to_owned()));
        assert_eq!(missing.json()["error"], "there is no volume \"dta\"");
    }
    // One server has no nodes.
    let elsewhere = server.post(&format!("{path}/clone"), json!({ "name": "copy", "node": "b" })).await;
    assert_eq!(elsewhere.refusal(), (409, "no_fleet".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn nothing_at_all_takes_nothing_away() {
    let server = Server::start().await;
    for path in ["/v1/network", "/v1/templates/base/network", "/v1/workspaces/default/quota"] {
        assert_eq!(server.call(Some(TOKEN), "PUT", path, None).await.refusal().0, 400, "{path}");
        assert_eq!(server.call(Some(TOKEN), "PUT", path, Some(json!({}))).await.status, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_preview_is_never_open_by_default() {
    let server = Server::start().await;
    for token in ["", "?sandling_token=abc.def"] {
        let head = format!("GET /{token} HTTP/1.1\r\nhost: 80-{MISSING}.localhost\r\nconnection: close\r\n\r\n");
        assert_eq!(server.say(head.as_bytes()).await.refusal().0, 401);
    }
    assert_eq!(
        server.call(None, "GET", "/v1/p/abc.def/", None).await.refusal(),
        (401, "preview_token_invalid".to_owned())
    );
    assert_eq!(server.call(None, "GET", &format!("/v1/sandboxes/{MISSING}/proxy/80/"), None).await.refusal().0, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_host_name_of_no_sandbox_is_told_in_e2bs_form_or_as_a_page() {
    let server = Server::start().await;
    // An id that nobody has, ids that cannot exist, and a port that cannot.
    for label in [
        format!("3000-{}", MISSING.replace('-', "")),
        "3000-nothing".to_owned(),
        "80-no-id".to_owned(),
        format!("70000-{MISSING}"),
    ] {
        let ask = |accept: &str| {
            format!("GET / HTTP/1.1\r\nhost: {label}.localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n")
        };
        let program = server.say(ask("*/*").as_bytes()).await;
        assert_eq!((program.status, &program.json()["message"]), (502, &"The sandbox was not found".into()), "{label}");
        let browser = server.say(ask("text/html,*/*;q=0.8").as_bytes()).await;
        assert_eq!(browser.status, 502, "{label}");
        assert!(browser.header("content-type").unwrap().starts_with("text/html"), "{label}");
    }
    server.stop().await;
}

#[tokio::test]
async fn e2bs_control_plane_answers_without_any_sandbox() {
    let server = Server::start().await;
    for list in ["/sandboxes", "/v2/sandboxes"] {
        assert_eq!(server.get(list).await.header("x-total-running"), Some("0"), "{list}");
    }
    let metrics = server.get(&format!("/sandboxes/metrics?sandbox_ids={MISSING},none")).await;
    assert_eq!((metrics.status, metrics.json()), (200, json!({ "sandboxes": {} })));
    let many = vec!["x"; 101].join(",");
    assert_eq!(server.get(&format!("/sandboxes/metrics?sandbox_ids={many}")).await.status, 400);
    for size in [json!({ "cpuCount": 0 }), json!({ "cpuCount": 1000 }), json!({ "memoryMB": 1 })] {
        let mut build = json!({ "name": "mine" });
        build.as_object_mut().unwrap().extend(size.as_object().unwrap().clone());
        let refused = server.post("/v3/templates", build).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(400)), "{size}");
    }
    assert_eq!(server.post("/v3/templates", json!({ "name": "mine", "cpuCount": 1 })).await.status, 202);
    for path in ["/templates/none", "/templates/aliases/none", "/templates/aliases/none:v1"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    let tags = json!({ "name": "mine", "tags": ["v1", "default"] });
    assert_eq!(server.call(Some(TOKEN), "DELETE", "/templates/tags", Some(tags)).await.status, 400);
    server.stop().await;
}
