//! Webhooks with a real receiver.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use rusqlite::params;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{PATIENCE, Server, TOKEN};

const SANDBOX: &str = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";

#[derive(Debug, Clone)]
struct Received {
    head: String,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).unwrap()
    }
}

/// Answers the first requests with these statuses, and all others with 204.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    async fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (mut statuses, all) = (Vec::from(statuses).into_iter(), received.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut bytes = Vec::new();
                let request = loop {
                    let mut buffer = [0; 4096];
                    let read = stream.read(&mut buffer).await.unwrap();
                    bytes.extend_from_slice(&buffer[..read]);
                    if let Some(request) = parse(&bytes) {
                        break request;
                    }
                };
                let status = statuses.next().unwrap_or(204);
                all.lock().unwrap().push(request);
                let answer =
                    format!("HTTP/1.1 {status} x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, received }
    }

    async fn wait_for(&self, count: usize) -> Vec<Received> {
        let start = Instant::now();
        loop {
            let received = self.received.lock().unwrap().clone();
            if received.len() >= count {
                return received;
            }
            assert!(start.elapsed() < PATIENCE, "{} of {count}: {received:?}", received.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Received> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let received = Received { head: head.to_owned(), body: body.to_owned() };
    let length: usize = received.header("content-length").parse().unwrap();
    (body.len() == length).then_some(received)
}

fn add_event(server: &Server, workspace: &str, kind: &str) {
    let insert =
        "INSERT INTO events (time_ms, sandbox, workspace, kind, detail) VALUES (?1, ?2, ?3, ?4, '{\"why\":\"x\"}')";
    server.store().execute(insert, params![1_800_000_000_000_i64, SANDBOX, workspace, kind]).unwrap();
}

async fn deliveries(server: &Server, id: &str) -> Vec<Value> {
    let answer = server.get(&format!("/v1/webhooks/{id}/deliveries")).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()["deliveries"].as_array().unwrap().clone()
}

/// Waits until the newest delivery fits.
async fn delivery(server: &Server, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = deliveries(server, id).await;
        if let Some(found) = found.first().filter(|found| fits(found)) {
            return found.clone();
        }
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn events_are_signed_retried_and_replayed() {
    let server = Server::start_with_private_webhooks().await;
    let receiver = Receiver::start(&[500]).await;
    add_event(&server, "default", "ended");
    let request = json!({ "url": receiver.url, "events": ["sandbox.ended"], "description": "mine" });
    let made = server.post("/v1/webhooks", request).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let made = made.json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let listed = server.get("/v1/webhooks").await.json();
    assert_eq!(listed["webhooks"][0]["url"], receiver.url.as_str());
    assert!(!listed.to_string().contains(key), "{listed}");
    // Events of other types and other workspaces are not sent, and neither are those from before.
    for (workspace, kind) in [("default", "created"), ("other", "ended"), ("default", "ended")] {
        add_event(&server, workspace, kind);
    }
    let received = receiver.wait_for(2).await;
    let body: Value = serde_json::from_str(&received[0].body).unwrap();
    assert_eq!((&body["type"], &body["data"]["sandbox_id"]), (&json!("sandbox.ended"), &json!(SANDBOX)));
    assert_eq!((&body["data"]["workspace"], &body["data"]["payload"]["why"]), (&json!("default"), &json!("x")));
    for one in &received {
        assert!(one.head.starts_with("POST /hook?a=b HTTP/1.1"), "{}", one.head);
        assert_eq!(one.header("webhook-id"), received[0].header("webhook-id"));
        let signed = format!("{}.{}.{}", one.header("webhook-id"), one.header("webhook-timestamp"), one.body);
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(&key["whsec_".len()..]).unwrap()).unwrap();
        mac.update(signed.as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(one.header("webhook-signature"), expected);
    }
    let done = delivery(&server, id, |one| one["state"] == "delivered").await;
    assert_eq!((&done["attempts"], &done["status"], &done["error"]), (&json!(2), &json!(204), &Value::Null));
    assert_eq!(deliveries(&server, id).await.len(), 1);
    let replay = format!("/v1/webhooks/{id}/deliveries/{}/replay", done["number"]);
    assert_eq!(server.post(&replay, json!({})).await.status, 202);
    assert_eq!(receiver.wait_for(3).await[2].body, received[0].body);
    assert_eq!(server.post(&format!("/v1/webhooks/{id}/deliveries/999/replay"), json!({})).await.refusal().0, 404);
    assert_eq!(server.call(Some(TOKEN), "DELETE", &format!("/v1/webhooks/{id}"), None).await.status, 204);
    assert_eq!(server.get(&format!("/v1/webhooks/{id}/deliveries")).await.refusal().0, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::start_with_private_webhooks().await;
    let receiver = Receiver::start(&[302]).await;
    let made = server.post("/v1/webhooks", json!({ "url": receiver.url, "events": ["*"] })).await.json();
    add_event(&server, "default", "paused");
    let tried = delivery(&server, made["id"].as_str().unwrap(), |one| one["attempts"] == 1).await;
    assert_eq!((&tried["state"], &tried["status"]), (&json!("pending"), &json!(302)));
    assert!(tried["next_at"].is_string(), "{tried}");
    server.stop().await;
}

#[tokio::test]
async fn private_addresses_are_not_told() {
    let server = Server::start().await;
    let receiver = Receiver::start(&[]).await;
    let port = receiver.url.split(['/', ':']).nth(4).unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/");
        let made = server.post("/v1/webhooks", json!({ "url": url, "events": ["*"] })).await.json();
        add_event(&server, "default", "ended");
        let tried = delivery(&server, made["id"].as_str().unwrap(), |one| one["attempts"] == 1).await;
        let error = tried["error"].as_str().unwrap();
        assert!(error.contains("not a public address") || error.contains("cannot resolve"), "{host}: {error}");
    }
    assert!(receiver.received.lock().unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn webhooks_belong_to_a_workspace_and_need_an_admin() {
    let server = Server::start().await;
    let request = || json!({ "url": "https://example.org/", "events": ["sandbox.ended"] });
    let made = server.post("/v1/webhooks", request()).await.json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(server.post("/v1/workspaces", json!({ "name": "other" })).await.status, 201);
    let token = async |path: &str, scope: &str| {
        let made = server.post(path, json!({ "name": "t", "scope": scope })).await.json();
        made["token"].as_str().unwrap().to_owned()
    };
    let other = token("/v1/workspaces/other/tokens", "admin").await;
    assert_eq!(server.call(Some(&other), "GET", "/v1/webhooks", None).await.json()["webhooks"], json!([]));
    for (method, path) in [
        ("GET", format!("/v1/webhooks/{id}/deliveries")),
        ("DELETE", format!("/v1/webhooks/{id}")),
        ("POST", format!("/v1/webhooks/{id}/deliveries/1/replay")),
    ] {
        let refused = server.call(Some(&other), method, &path, None).await;
        assert_eq!(refused.refusal().0, 404, "{method} {path}");
    }
    let runner = token("/v1/me/tokens", "run").await;
    assert_eq!(server.call(Some(&runner), "GET", "/v1/webhooks", None).await.refusal().0, 403);
    assert_eq!(server.call(Some(&runner), "POST", "/v1/webhooks", Some(request())).await.refusal().0, 403);
    for bad in [
        json!({ "url": "ftp://example.org", "events": ["*"] }),
        json!({ "url": "https://u:p@example.org/", "events": ["*"] }),
        json!({ "url": "https://example.org/", "events": [] }),
        json!({ "url": "https://example.org/", "events": ["<x>"] }),
        json!({ "url": "https://example.org/", "events": ["*"], "description": "a\nb" }),
    ] {
        assert_eq!(server.post("/v1/webhooks", bad.clone()).await.refusal().0, 400, "{bad}");
    }
    server.stop().await;
}
