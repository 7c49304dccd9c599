//! The gateway reaches the internet through the operator's HTTP proxy.

use std::net::SocketAddr;

use sandling_network::EventKind;
use sandling_network::policy::{Range, Refusal};
use sandling_proxy::UpstreamProxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::isolated;
use crate::world::{SHARED, World, allow, exchange};

const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 3128);

/// A proxy to whom every name is at the same address. It reports the head of each request, and opens no tunnel to port 80.
async fn start_proxy() -> mpsc::UnboundedReceiver<String> {
    let listener = TcpListener::bind(PROXY).await.unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, tell.clone()));
        }
    });
    told
}

async fn serve(mut client: TcpStream, tell: mpsc::UnboundedSender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    tell.send(head.clone()).unwrap();
    let target = head.split(' ').nth(1).unwrap();
    let port: u16 = if head.starts_with("CONNECT") { target.rsplit_once(':').unwrap().1.parse().unwrap() } else { 80 };
    if head.starts_with("CONNECT") && port == 80 {
        client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        return;
    }
    let mut server = TcpStream::connect((SHARED, port)).await.unwrap();
    match port {
        80 => server.write_all(head.as_bytes()).await.unwrap(),
        _ => client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap(),
    }
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

async fn behind_proxy(entries: &[&str]) -> (World, mpsc::UnboundedReceiver<String>) {
    let told = start_proxy().await;
    let proxy = UpstreamProxy::new(&format!("http://me:pw@{PROXY}"), "other.com").unwrap();
    (World::with(allow(entries), |config| config.proxy = Some(proxy)).await, told)
}

isolated! {
    async fn a_proxy_is_asked_for_names_that_only_it_can_resolve() {
        let (world, mut told) = behind_proxy(&["only-the-proxy-knows.com", "example.com", "example.com:7"]).await;
        let unknown = world.guest.resolve("only-the-proxy-knows.com").await;
        let example = world.guest.resolve("example.com").await;
        assert!(unknown.len() == 1 && example.len() == 1 && unknown != example, "{unknown:?} {example:?}");

        world.tls(example[0], "example.com").await.unwrap();
        let head = told.recv().await.unwrap();
        assert!(head.starts_with("CONNECT example.com:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");

        let request = "GET /a?b HTTP/1.1\r\nHost: only-the-proxy-knows.com\r\nConnection: close\r\n\r\n";
        let response = world.http(unknown[0], 80, request).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let head = told.recv().await.unwrap();
        assert!(head.starts_with("GET http://only-the-proxy-knows.com/a?b HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\nproxy-authorization: basic "), "{head}");

        let mut echo = world.guest.connect(example[0], 7).await.unwrap();
        echo.write_all(b"\0x").await.unwrap();
        assert_eq!(echo.read_u8().await.unwrap(), 0);
        assert!(told.recv().await.unwrap().starts_with("CONNECT example.com:7 "));
    }

    async fn the_policy_applies_in_front_of_a_proxy() {
        let (mut world, mut told) = behind_proxy(&["example.com", "other.com", "rebind.com"]).await;
        assert!(world.guest.resolve("evil.com").await.is_empty());
        let example = world.guest.resolve("example.com").await[0];
        assert!(world.tls(example, "evil.com").await.is_err());
        assert!(told.recv().await.unwrap().starts_with("CONNECT example.com:443 "));
        let stream = world.guest.connect(example, 80).await.unwrap();
        let answer = exchange(stream, "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");

        // This host knows that the name is at a private address, so the proxy is not asked.
        assert!(world.guest.resolve("rebind.com").await.is_empty());
        world.refused(EventKind::Dns, Refusal::Rebinding(Range::Metadata)).await;

        // NO_PROXY.
        assert_eq!(world.guest.resolve("other.com").await, [SHARED]);
        world.tls(SHARED, "other.com").await.unwrap();
        assert!(told.try_recv().is_err(), "the proxy was asked for a host that is not its own");
    }
}
