//! Clients that mean no good: tokens that are none, words that want to be commands, connections that only take room.

use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use sandling_api::ServerLimits;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, PATIENCE, Server, TOKEN};

/// What a client that waits its turn still bears, on a machine that has other things to do.
const PROMPTLY: Duration = Duration::from_secs(10);

/// Everything that comes back until the other side closes; nothing if it closes at once.
async fn all_of(mut stream: TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A server may well reset a connection on which rubbish still arrives.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("it is closed");
    heard
}

/// One request with a token, over a connection that stays open.
async fn say_me(stream: &mut TcpStream) {
    let request = format!("GET /v1/me HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        answer.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer in time").unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn an_expired_token_is_refused_with_its_reason() {
    let server = Server::start().await;
    let made = server.post("/v1/me/tokens", json!({ "label": "brief", "expires_in_days": 1 })).await.json();
    let (token, prefix) = (made["token"].as_str().unwrap(), made["prefix"].as_str().unwrap());
    assert_eq!(server.call(Some(token), "GET", "/v1/me", None).await.status, 200);
    let store = rusqlite::Connection::open(server.home().join("sandling.db")).unwrap();
    let changed = store.execute("UPDATE tokens SET expires_ms = 1 WHERE prefix = ?1", [prefix]).unwrap();
    assert_eq!(changed, 1);
    assert_eq!(server.call(Some(token), "GET", "/v1/me", None).await.refusal(), (401, "token_expired".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn tokens_that_are_malformed_in_any_way_are_refused() {
    let server = Server::start().await;
    let made = server.post("/v1/me/tokens", json!({ "label": "real" })).await.json();
    let real = made["token"].as_str().unwrap().to_owned();
    let with = [
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {real}"),
        format!("Bearer{real}"),
        format!("Bearer {real}x"),
        format!("Bearer {}", &real[..real.len() - 1]),
        format!("Bearer {}", real.to_uppercase()),
        format!("Bearer {real} {real}"),
        format!("Bearer \"{real}\""),
        format!("Bearer {}' OR '1'='1", &real[..12]),
        format!("Bearer {}%", &real[..12]),
        format!("Bearer {}", "x".repeat(20_000)),
        "Bearer \u{e9}\u{e9}\u{e9}".to_owned(),
    ];
    for value in with {
        let head = format!("GET /v1/me HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: {value}\r\n\r\n");
        let answer = server.say(head.as_bytes()).await;
        assert_eq!(answer.status, 401, "{value}");
        assert!(!String::from_utf8_lossy(&answer.body).contains(&real), "the secret is told again");
    }
    server.stop().await;
}

#[tokio::test]
async fn words_in_a_query_are_only_words() {
    let server = Server::start().await;
    let before = server.get("/v1/audit").await.json()["items"].as_array().unwrap().len();
    let queries = [
        "/v1/audit?since=%27;DROP%20TABLE%20audit;--",
        "/v1/audit?workspace=default%27%20OR%20%271%27=%271",
        "/v1/audit?after=1%20OR%201=1",
        "/v1/audit?limit=-1",
        "/v1/audit?limit=99999999999999999999",
        "/v1/audit?workspace=%00",
        "/v1/audit?workspace=%ff",
        "/v1/audit?after=1&after=2",
        "/v1/events?tail=%0d%0aX-Evil:%201",
        "/v1/events?tail=1e9",
        "/v1/workspaces/default%27--/quota",
        "/v1/workspaces/..%2fdefault/quota",
        "/v1/templates/..%2f..%2fetc%2fpasswd",
        "/v1/templates/%2e%2e",
        "/v1/templates/builds/%27",
        "/v1/audit/1%20OR%201/recording",
    ];
    for query in queries {
        let answer = server.get(query).await;
        assert!([400, 404].contains(&answer.status), "{query}: {}", answer.status);
        assert_eq!(answer.header("x-evil"), None, "{query}");
        answer.refusal();
    }
    assert_eq!(server.get("/v1/audit").await.json()["items"].as_array().unwrap().len(), before);
    server.stop().await;
}

#[tokio::test]
async fn names_that_would_do_something_to_a_terminal_or_a_log_are_refused() {
    let server = Server::start().await;
    for label in ["a\r\nX-Evil: 1", "\u{1b}[2J", "\0", &"x".repeat(10_000)] {
        assert_eq!(server.post("/v1/me/tokens", json!({ "label": label })).await.refusal().0, 400, "{label:?}");
    }
    for name in ["", "-a", "A", "a b", "a/b", "..", "a'--", "a\n", &"a".repeat(64)] {
        assert_eq!(server.post("/v1/workspaces", json!({ "name": name })).await.refusal().0, 400, "{name:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_request_is_no_fault_of_the_server() {
    let server = Server::start().await;
    let long = "x".repeat(100_000);
    let requests = [
        "\r\n\r\n\r\n\r\n".to_owned(),
        "GARBAGE\r\n\r\n".to_owned(),
        "GET /healthz HTTP/9.9\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nhost: t\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: t\r\nx: {long}\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: t\r\n{}\r\n", "x: y\r\n".repeat(5000)),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: t\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: t\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /v1/sandboxes HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: t\r\nx-\u{0}: 1\r\n\r\n".to_owned(),
        "CONNECT example.org:443 HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n".to_owned(),
        "GET http://example.org/v1/me HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n".to_owned(),
    ];
    for request in requests {
        let mut stream = server.connect().await;
        // The server may close before it has heard all of it.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.shutdown().await;
        let heard = String::from_utf8_lossy(&all_of(stream).await).into_owned();
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 4"), "{:.60}: {heard:.60}", request);
    }
    assert_eq!(server.get("/v1/me").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn no_other_site_is_invited() {
    let server = Server::start().await;
    for method in ["GET", "OPTIONS"] {
        let head = format!(
            "{method} /v1/me HTTP/1.1\r\nhost: t\r\nconnection: close\r\norigin: http://evil.example\r\n\
             access-control-request-method: GET\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        );
        let answer = server.say(head.as_bytes()).await;
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn thousands_of_idle_connections_keep_nobody_out() {
    let server = Server::start().await;
    let mut kept = server.connect().await;
    say_me(&mut kept).await;
    // Both ends of each are ours.
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX) / 4;
    let count = usize::try_from(most).unwrap_or(usize::MAX).min(4000);
    let mut idle = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = server.connect().await;
        if number % 2 == 0 {
            // The server may have closed it already, to make room.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost").await;
        }
        idle.push(stream);
    }
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(server.get("/v1/me").await.status, 200);
        say_me(&mut kept).await;
        assert!(asked.elapsed() < PROMPTLY, "{count} idle connections cost {:?}", asked.elapsed());
    }
    drop(idle);
    assert_eq!(server.get("/v1/me").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn heads_that_come_byte_by_byte_are_cut_off_and_hold_up_nobody() {
    let server = Server::with(ServerLimits { head_within: Duration::from_secs(1), ..Default::default() }).await;
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut stream = server.connect().await;
        slow.spawn(async move {
            let begun = Instant::now();
            // It ends when the server has had enough.
            while stream.write_all(b"x").await.is_ok() && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            begun.elapsed()
        });
    }
    let asked = Instant::now();
    assert_eq!(server.get("/v1/me").await.status, 200);
    assert!(asked.elapsed() < PROMPTLY, "{:?}", asked.elapsed());
    for lasted in slow.join_all().await {
        assert!(lasted < PATIENCE, "a slow client was borne for {lasted:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_holds_up_nobody_else() {
    let server = Server::with(ServerLimits { drain_within: Duration::from_millis(100), ..Default::default() }).await;
    let mut stream = server.connect().await;
    // Requests without end, and no look at the answers.
    let request =
        format!("GET /openapi.json HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\n\r\n").repeat(1000);
    let flooding = tokio::spawn(async move {
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    });
    for _ in 0..10 {
        assert_eq!(server.get("/v1/me").await.status, 200);
    }
    flooding.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_its_body_is_forgotten() {
    let server = Server::start().await;
    for _ in 0..50 {
        let mut stream = server.connect().await;
        let head = format!(
            "POST /v1/me/tokens HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    let listed = server.get("/v1/me/tokens").await.json();
    assert!(!listed["items"].as_array().unwrap().iter().any(|token| token["label"] == ""), "{listed}");
    server.stop().await;
}

/// The body is refused by its type, its size or its depth, on every route that takes one.
#[tokio::test]
async fn bodies_that_are_too_much_are_refused_on_every_route() {
    let server = Server::start().await;
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let large = format!("{{\"label\":\"{}\"}}", "x".repeat(5 << 20));
    for path in ["/v1/sandboxes", "/v1/me/tokens", "/v1/workspaces", "/v1/workspaces/default/tokens"] {
        for (body, status) in [(&deep, 400), (&large, 413)] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut stream = server.connect().await;
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body.as_bytes()).await.unwrap();
            assert_eq!(Answer::read(stream).await.refusal().0, status, "{path}");
        }
    }
    server.stop().await;
}
