//! Missing and remote servers: error messages, and which server gets the token.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::SANDLING;

fn sandling(home: &TempDir, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(SANDLING);
    command.args(arguments).env("SANDLING_HOME", home.path());
    command.env_remove("SANDLING_API").env_remove("SANDLING_TOKEN").envs(variables.iter().copied());
    command.output().unwrap()
}

#[track_caller]
fn assert_says(ran: &Output, code: i32, word: &str) {
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(code), "{said}");
    assert!(said.contains(word) && said.trim_end().lines().count() == 1, "{said}");
    assert!(ran.stdout.is_empty());
}

#[test]
fn without_a_server_every_command_suggests_starting_one() {
    let home = TempDir::new().unwrap();
    for arguments in [
        &["create"][..],
        &["ls"],
        &["exec", "3f", "true"],
        &["cp", "/etc/hostname", "3f:/x"],
        &["logs", "3f"],
        &["events"],
        &["ports", "3f"],
        &["pause", "3f"],
        &["resume", "3f"],
        &["rm", "3f"],
        &["token", "ls"],
        &["quota"],
        &["audit"],
    ] {
        assert_says(&sandling(&home, &[], arguments), 2, "sandling serve");
    }
}

#[test]
fn invalid_and_unreachable_addresses_are_reported() {
    let home = TempDir::new().unwrap();
    let token = ("SANDLING_TOKEN", "x");
    assert_says(&sandling(&home, &[("SANDLING_API", "localhost:8080"), token], &["ls"]), 2, "http://");
    // A port that is free again.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{free}");
    assert_says(&sandling(&home, &[("SANDLING_API", &nobody), token], &["ls"]), 1, &nobody);
    // `run` exits with 2 because nothing was run.
    assert_eq!(sandling(&home, &[("SANDLING_API", &nobody), token], &["run", "-c", "1"]).status.code(), Some(2));
    // The home's token is only for the home's own server.
    std::fs::write(home.path().join("token"), "sdl_secret\n").unwrap();
    assert_says(&sandling(&home, &[("SANDLING_API", &nobody)], &["ls"]), 2, "SANDLING_TOKEN");
}

/// A TLS server with one fixed response that checks the token.
async fn secure(certified: &CertifiedKey<rcgen::KeyPair>) -> SocketAddr {
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
            assert!(request.starts_with("get /behind/v1/sandboxes "), "{request}");
            assert!(request.contains("authorization: bearer mine"), "{request}");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]";
            stream.write_all(answer).await.unwrap();
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_server_needs_a_trusted_certificate() {
    let home = TempDir::new().unwrap();
    let certified = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let authority = home.path().join("authority.pem");
    std::fs::write(&authority, certified.cert.pem()).unwrap();
    let port = secure(&certified).await.port();
    let api = format!("https://localhost:{port}/behind/");
    let (api, token) = (("SANDLING_API", api.as_str()), ("SANDLING_TOKEN", "mine"));
    let trusted = ("SSL_CERT_FILE", authority.to_str().unwrap());
    let ran = sandling(&home, &[api, token, trusted], &["ls", "--json"]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "[]", "{}", String::from_utf8_lossy(&ran.stderr));
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&authority, other.cert.pem()).unwrap();
    assert_says(&sandling(&home, &[api, token, trusted], &["ls", "--json"]), 1, "certificate");
}
