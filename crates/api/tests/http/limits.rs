//! The limits of a token: how many requests it sends, and how many it has open.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, PATIENCE, Server, TOKEN};

/// A token of another workspace, which has these limits.
async fn limited(server: &Server, limits: serde_json::Value) -> String {
    assert_eq!(server.post("/v1/workspaces", json!({ "name": "limited" })).await.status, 201);
    let set = server.call(Some(TOKEN), "PUT", "/v1/workspaces/limited/quota", Some(limits)).await;
    assert_eq!(set.status, 200, "{:?}", set.json());
    let made = server.post("/v1/workspaces/limited/tokens", json!({ "label": "t", "scope": "admin" })).await;
    made.json()["token"].as_str().unwrap().to_owned()
}

fn assert_refused(answer: &Answer, code: &str) {
    assert_eq!(answer.refusal(), (429, code.to_owned()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.json()["error"].as_str().unwrap().starts_with("this token"), "{}", answer.json());
}

#[tokio::test]
async fn every_kind_of_request_counts_against_the_rate_of_its_token() {
    let server = Server::start().await;
    let token = limited(&server, json!({ "requests_per_second": 1 })).await;
    let mut refused = 0;
    // The burst is four seconds' worth. The machine may be slow, so some more are admitted.
    for number in 0..60 {
        let answer = match number % 4 {
            0 => server.call(Some(&token), "GET", "/v1/me", None).await,
            1 => server.call(Some(&token), "PUT", "/v1/workspaces/limited/quota", Some(json!({}))).await,
            2 => server.call(Some(&token), "GET", "/v1/events?tail=1", None).await,
            _ => server.call(Some(&token), "DELETE", "/v1/sandboxes/none", None).await,
        };
        if answer.status == 429 {
            assert_refused(&answer, "rate_limited");
            refused += 1;
        }
    }
    assert!(refused >= 40, "only {refused} of 60 requests were refused");
    assert_eq!(server.get("/v1/me").await.status, 200, "another token has its own rate");
    server.stop().await;
}

async fn follow(server: &Server, token: &str) -> (u16, TcpStream) {
    let mut stream = server.connect().await;
    let request = format!("GET /v1/events?follow=1 HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await.expect("an answer in time").unwrap();
    (std::str::from_utf8(&head[9..]).unwrap().parse().unwrap(), stream)
}

#[tokio::test]
async fn a_stream_counts_as_open_until_its_client_leaves() {
    let server = Server::start().await;
    let token = limited(&server, json!({ "open_requests": 2 })).await;
    let (first, stream) = follow(&server, &token).await;
    let (second, _kept) = follow(&server, &token).await;
    assert_eq!((first, second), (200, 200));
    assert_refused(&server.call(Some(&token), "GET", "/v1/me", None).await, "too_many_open_requests");
    drop(stream);
    let freed = async {
        while server.call(Some(&token), "GET", "/v1/me", None).await.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the place is free again");
    server.stop().await;
}

#[tokio::test]
async fn a_limit_that_would_lock_out_everybody_is_refused() {
    let server = Server::start().await;
    for limits in [json!({ "requests_per_second": 0 }), json!({ "open_requests": 0 })] {
        let answer = server.call(Some(TOKEN), "PUT", "/v1/workspaces/default/quota", Some(limits)).await;
        assert_eq!(answer.refusal().0, 400);
    }
    server.stop().await;
}

/// The path of an address to which the token's client may upload files.
async fn upload_path(server: &Server, token: &str) -> String {
    let link = "/templates/x/files/0123456789abcdef0123456789abcdef";
    let answer = server.call(Some(token), "GET", link, None).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    let url = answer.json()["url"].as_str().unwrap().to_owned();
    url[url.find("/templates").unwrap()..].to_owned()
}

#[tokio::test]
async fn an_upload_counts_against_the_disk_quota() {
    let server = Server::start().await;
    let token = limited(&server, json!({ "disk_mb": 15 })).await;
    let path = upload_path(&server, &token).await;
    let upload = || server.call(None, "PUT", &path, Some(json!("a file")));
    let refused = upload().await;
    assert_eq!(refused.status, 429);
    assert!(refused.json()["message"].as_str().unwrap().contains("MiB of disk"), "{}", refused.json());
    let set = server.call(Some(TOKEN), "PUT", "/v1/workspaces/limited/quota", Some(json!({ "disk_mb": 20 }))).await;
    assert_eq!(set.json()["used"]["disk_mb"], 0, "what was refused is gone");
    assert_eq!(upload().await.status, 200);
    let quota = server.call(Some(&token), "GET", "/v1/quota", None).await.json();
    assert_eq!(quota["used"]["disk_mb"], 1);
    server.stop().await;
}

#[tokio::test]
async fn an_upload_counts_against_the_rate_of_the_token_that_its_address_comes_from() {
    let server = Server::start().await;
    let token = limited(&server, json!({ "requests_per_second": 1 })).await;
    let path = upload_path(&server, &token).await;
    let mut refused = 0;
    for _ in 0..40 {
        let answer = server.call(None, "PUT", &path, Some(json!("a file"))).await;
        if answer.status == 429 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(answer.json()["message"].as_str().unwrap().starts_with("this token"), "{}", answer.json());
            refused += 1;
        }
    }
    assert!(refused >= 20, "only {refused} of 40 uploads were refused");
    server.stop().await;
}

#[tokio::test]
async fn a_template_that_no_host_should_bake_is_refused_before_its_build() {
    let server = Server::start().await;
    for size in [json!({ "cpu": 64 }), json!({ "memory_mb": 262_144 })] {
        let mut request = json!({ "name": "large", "packages": ["jq"] });
        request.as_object_mut().unwrap().extend(size.as_object().unwrap().clone());
        assert_eq!(server.post("/v1/templates/build", request).await.refusal().0, 400);
    }
    assert_eq!(server.get("/v1/templates/builds").await.json(), json!([]));
    server.stop().await;
}

#[tokio::test]
async fn packages_that_are_no_names_are_refused_before_their_build() {
    let server = Server::start().await;
    for (packages, status) in [
        (json!({ "packages": ["-oDebug=1"] }), 400),
        (json!({ "packages": ["jq;id"] }), 400),
        (json!({ "npm": ["git+ssh://example.com/x"] }), 400),
        (json!({ "npm": ["../x"] }), 400),
        (json!({ "pip": ["--index-url=http://example.com"] }), 400),
        (json!({ "pip": ["six @ http://example.com/six.whl"] }), 400),
        (json!({ "requirements": "six\n-e .\n" }), 400),
        (json!({ "pip": ["six"], "dockerfile": "FROM base" }), 400),
        (json!({ "pip": ["six"], "target": "first" }), 400),
        (json!({ "pip": ["six"], "build_args": { "A": "1" } }), 400),
        (json!({ "pip": ["six"], "from": "nowhere" }), 404),
        (json!({ "pip": ["six"], "name": "base" }), 409),
        (json!({ "pip": ["six"], "name": "../x" }), 400),
    ] {
        let mut request = json!({ "name": "mine" });
        request.as_object_mut().unwrap().extend(packages.as_object().unwrap().clone());
        let answer = server.post("/v1/templates/build", request).await;
        assert_eq!(answer.refusal().0, status, "{packages}");
    }
    assert_eq!(server.get("/v1/templates/builds").await.json(), json!([]));
    server.stop().await;
}
