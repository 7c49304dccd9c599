//! HTTPS and HTTP/2.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use sandling_api::{LocalCertificate, ServerLimits, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{PATIENCE, Server, TOKEN};

const DOMAIN: &str = "sandling.localhost";

async fn server() -> Server {
    Server::listening(ServerLimits::default(), |listener, directory| {
        let local = LocalCertificate::create(&directory.join("tls"), DOMAIN, &[[127, 0, 0, 1].into()]).unwrap();
        listener.with_tls(local.tls().unwrap()).at_domain(DOMAIN)
    })
    .await
}

/// A connection that trusts the authority in `trusted` only.
async fn connect(
    server: &Server,
    trusted: &Path,
    name: &'static str,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_file_iter(trusted).unwrap().flatten());
    let mut config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, server.connect().await).await
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    let uri: hyper::Uri = uri.parse().unwrap();
    let host = uri.authority().map_or(DOMAIN.to_owned(), ToString::to_string);
    Request::get(uri)
        .header("host", host)
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Empty::new())
        .unwrap()
}

async fn http2<S>(stream: S) -> http2::SendRequest<Empty<Bytes>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn json(response: Response<hyper::body::Incoming>) -> serde_json::Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn https_has_both_versions_and_hands_out_urls_of_its_domain() {
    let server = server().await;
    let authority = server.directory().join("tls/ca.pem");
    let link = "/templates/x/files/0000000000000000000000000000000000000000000000000000000000000000";
    for name in ["sandling.localhost", "api.sandling.localhost", "3000-abc.sandling.localhost", "127.0.0.1"] {
        let stream = connect(&server, &authority, name, b"h2").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut sender = http2(stream).await;
        let uri = format!("https://api.{DOMAIN}:8443{link}");
        let response = sender.send_request(request(&uri)).await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 201));
        let url = json(response).await["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("https://api.{DOMAIN}:8443/templates/x/files/")), "{url}");
    }
    let stream = connect(&server, &authority, DOMAIN, b"http/1.1").await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request("/v1/me")).await.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_11, 200));
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_the_authority_or_for_another_name_does_not_connect() {
    let server = server().await;
    let other = tempfile::tempdir().unwrap();
    let other = LocalCertificate::create(other.path(), DOMAIN, &[]).unwrap();
    assert!(connect(&server, &other.authority_certificate(), DOMAIN, b"h2").await.is_err());
    assert!(connect(&server, &server.directory().join("tls/ca.pem"), "example.org", b"h2").await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn http2_works_without_tls_for_a_client_that_knows() {
    let server = Server::start().await;
    let mut sender = http2(server.connect().await).await;
    let response = sender.send_request(request(&format!("http://{}/v1/me", server.address))).await.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
    server.stop().await;
}

/// A frame of HTTP/2: its type, flags and stream.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn a_flood_of_cancelled_requests_ends_its_connection_and_hurts_nobody() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let mut flood = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    for number in 0..20_000 {
        // GET http://t/, complete, and cancelled at once.
        flood.extend(frame(1, 5, 2 * number + 1, &[0x82, 0x84, 0x86, 0x41, 1, b't']));
        flood.extend(frame(3, 0, 2 * number + 1, &8u32.to_be_bytes()));
    }
    let (mut reader, mut writer) = stream.split();
    let mut heard = Vec::new();
    // Both may fail: the server closes while it is being flooded.
    let both = async { tokio::join!(writer.write_all(&flood), reader.read_to_end(&mut heard)) };
    let _ = tokio::time::timeout(PATIENCE, both).await.expect("the server ends the connection");
    assert!(!heard.is_empty());
    assert_eq!(server.get("/v1/me").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("chain.pem"), files.path().join("key.pem"));
    let issue = |name: &str| {
        let made = files.path().join(name);
        LocalCertificate::create(&made, DOMAIN, &[]).unwrap();
        made
    };
    let replace = |made: &Path| {
        std::fs::copy(made.join("server.key"), &key).unwrap();
        std::fs::copy(made.join("server.pem"), &certificate).unwrap();
    };
    let (first, second) = (issue("first"), issue("second"));
    replace(&first);
    let server = Server::listening(ServerLimits::default(), |listener, _| {
        listener.with_tls(Tls::from_files(&certificate, &key).unwrap())
    })
    .await;
    let trusts = async |made: &Path| connect(&server, &made.join("ca.pem"), DOMAIN, b"h2").await.is_ok();
    assert!(trusts(&first).await && !trusts(&second).await);
    std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nbroken\n").unwrap();
    // Longer than the server waits between two looks.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(trusts(&first).await, "the old certificate stays");
    replace(&second);
    let renewed = async {
        while !trusts(&second).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("the new certificate is used");
    server.stop().await;
}
