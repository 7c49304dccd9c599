//! Behind a reverse proxy: what it says about its client, and what other clients say.

use sandling_api::{ServerLimits, TrustedProxies};
use serde_json::Value;

use crate::harness::{Answer, Server, TOKEN};

const DOMAIN: &str = "vm.example.org";
const FORWARDED: &str = "x-forwarded-for: 198.51.100.7, 203.0.113.9\r\nx-forwarded-proto: https\r\n\
    x-forwarded-host: api.vm.example.org\r\n";

/// A server that believes the proxies in `networks`, without TLS of its own.
async fn behind(networks: &[&str]) -> Server {
    let proxies = TrustedProxies::new(networks.iter().map(|network| network.parse().unwrap()).collect());
    Server::listening(ServerLimits { proxies, ..Default::default() }, |listener, _| listener.at_domain(DOMAIN)).await
}

async fn send(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 10.0.0.5:8080\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\n{FORWARDED}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    server.say(head.as_bytes()).await
}

/// The link that an upload gets, and the address of its client in the audit log.
async fn seen(server: &Server) -> (String, Value) {
    let hash = "0".repeat(64);
    let link = send(server, "GET", &format!("/templates/x/files/{hash}"), "").await.json()["url"].clone();
    assert_eq!(send(server, "POST", "/v1/me/tokens", r#"{"name":"x"}"#).await.status, 201);
    let audit = server.get("/v1/audit").await.json();
    let entry =
        audit["items"].as_array().unwrap().iter().find(|entry| entry["action"] == "token.create").unwrap().clone();
    (link.as_str().unwrap().to_owned(), entry["remote"].clone())
}

#[tokio::test]
async fn a_trusted_proxy_says_who_the_client_is_and_how_it_reached_the_server() {
    let server = behind(&["127.0.0.0/8"]).await;
    let (link, client) = seen(&server).await;
    assert!(link.starts_with("https://api.vm.example.org/"), "{link}");
    assert_eq!(client, "203.0.113.9");
    server.stop().await;
}

#[tokio::test]
async fn what_another_client_says_about_itself_is_ignored() {
    for networks in [vec![], vec!["192.0.2.1/32"]] {
        let server = behind(&networks).await;
        let (link, client) = seen(&server).await;
        assert!(link.starts_with("http://") && !link.contains("api.vm.example.org"), "{link}");
        assert_eq!(client, "127.0.0.1");
        server.stop().await;
    }
}

#[tokio::test]
async fn the_dashboards_cookie_is_for_https_if_the_client_used_it() {
    let server = behind(&["127.0.0.1/32"]).await;
    let answer = send(&server, "POST", "/v1/dashboard/session", &format!(r#"{{"token":"{TOKEN}"}}"#)).await;
    assert_eq!(answer.status, 201);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Secure"), "{cookie}");
    server.stop().await;
}
