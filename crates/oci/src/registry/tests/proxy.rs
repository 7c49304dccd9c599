use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use sandling_proxy::UpstreamProxy;

use super::super::{Client, RegistryError, RegistryOptions};
use super::image::{image, platform};
use super::server::{Server, options, tls};

/// Connects every client to the same server, and reports what the clients asked for.
async fn start_proxy(to: SocketAddr) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                asked.send(String::from_utf8(head).unwrap()).unwrap();
                let mut server = TcpStream::connect(to).await.unwrap();
                client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, receiver)
}

#[tokio::test]
async fn a_proxy_carries_https_and_resolves_names_that_this_host_cannot() {
    let (acceptor, extra_ca) = tls("registry.invalid");
    let server = Server::start_at([127, 0, 0, 1].into(), Some(acceptor), |seen| image().answer(seen)).await;
    let (address, mut asked) = start_proxy(server.address).await;
    let proxy = Some(UpstreamProxy::new(&format!("http://me:pw@{address}"), "direct.invalid").unwrap());
    let client = Client::new(RegistryOptions { extra_ca, proxy, ..options() }).unwrap();
    client.resolve(&"registry.invalid/a/b:1".parse().unwrap(), &platform()).await.unwrap();
    let head = asked.recv().await.unwrap();
    assert!(head.starts_with("CONNECT registry.invalid:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");
    while asked.try_recv().is_ok() {}
    let error = client.resolve(&"10.0.0.1/a/b:1".parse().unwrap(), &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::AddressRefused { .. }), "{error}");
    let error = client.resolve(&"direct.invalid/a/b:1".parse().unwrap(), &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(asked.try_recv().is_err(), "the proxy was asked for a host that is not its own");
}
