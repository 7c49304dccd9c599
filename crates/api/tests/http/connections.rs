//! Connections: signs of life, limits, the drain.

use std::time::Duration;

use sandling_api::ServerLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, PATIENCE, Server, TOKEN};

const BODY: &str = r#"{"label":"x"}"#;
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn head(agent: &str) -> String {
    format!(
        "POST /v1/me/tokens HTTP/1.1\r\nhost: t\r\nuser-agent: {agent}\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    )
}

/// A request whose response has no end.
fn events() -> String {
    format!("GET /v1/events?follow=1 HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\n\r\n")
}

async fn heard(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("bytes in time").unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn quick() -> Server {
    Server::with(ServerLimits { heartbeat: Duration::from_millis(20), ..Default::default() }).await
}

#[tokio::test]
async fn the_python_client_gets_signs_of_life_until_the_answer_comes_and_none_within_it() {
    let server = quick().await;
    let mut stream = server.connect().await;
    // Twice over one connection: the second request must not suffer from the first.
    for _ in 0..2 {
        stream.write_all(head("pandastack-py/0.10.0").as_bytes()).await.unwrap();
        assert_eq!(heard(&mut stream, 3 * INTERIM.len()).await, INTERIM.repeat(3));
        stream.write_all(BODY.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.contains("\"label\":\"x\"") || !answer.ends_with('}') {
            answer += &heard(&mut stream, 1).await;
        }
        let last = answer.rfind("HTTP/1.1 ").unwrap();
        assert!(answer[..last].replace(INTERIM, "").is_empty(), "{answer}");
        assert!(answer[last..].starts_with("HTTP/1.1 201 "), "{answer}");
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn other_clients_get_no_signs_of_life() {
    let server = quick().await;
    let mut stream = server.connect().await;
    stream.write_all(head("node").as_bytes()).await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(300), stream.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");
    stream.write_all(BODY.as_bytes()).await.unwrap();
    assert!(heard(&mut stream, 13).await.starts_with("HTTP/1.1 201 "));
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_to_come_back() {
    let server = Server::with(ServerLimits { connections: 1, ..Default::default() }).await;
    let mut first = server.connect().await;
    first.write_all(events().as_bytes()).await.unwrap();
    assert!(heard(&mut first, 12).await.ends_with("200"));
    let refused = Answer::read(server.connect().await).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json()["code"], "too_many_connections");
    drop(first);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_makes_room_for_a_new_one() {
    let server = Server::with(ServerLimits { connections: 1, ..Default::default() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    assert!(heard(&mut first, 12).await.ends_with("200"));
    assert_eq!(server.get("/v1/me").await.status, 200);
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, first.read_to_end(&mut rest)).await.expect("it is closed").unwrap();
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_lives_longer_than_a_slow_head() {
    let limits = ServerLimits { head_within: Duration::from_millis(200), ..Default::default() };
    let server = Server::with(limits).await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with('}') {
            answer += &heard(&mut stream, 1).await;
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    stream.write_all(b"GET /healthz").await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed").unwrap();
    assert_eq!(rest, b"");
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_does_not_finish_its_head_is_closed() {
    let server = Server::with(ServerLimits { head_within: Duration::from_millis(100), ..Default::default() }).await;
    for begun in [&b""[..], b"GET /healthz HTTP/1.1\r\nhost"] {
        let mut stream = server.connect().await;
        stream.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed").unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn an_event_stream_without_end_ends_when_the_server_drains() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(events().as_bytes()).await.unwrap();
    assert!(heard(&mut stream, 12).await.ends_with("200"));
    server.stop().await;
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends").unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream was not finished");
}

#[tokio::test]
async fn a_request_under_way_is_finished_before_the_server_ends() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(head("curl").as_bytes()).await.unwrap();
    stream.write_all(&BODY.as_bytes()[..3]).await.unwrap();
    // The head must have been read before the drain begins, or there is no request under way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let stopping = tokio::spawn(server.stop());
    stream.write_all(&BODY.as_bytes()[3..]).await.unwrap();
    assert_eq!(Answer::read(stream).await.status, 201);
    stopping.await.unwrap();
}
