//! A server that answers each request with the bytes that a test gives.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::{Client, Credentials, RegistryOptions, Role, Timeouts};
use crate::reference::Reference;

#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    head: String,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub struct Answer {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(PartialEq, Eq)]
enum Then {
    Close,
    /// Sends nothing more and does not hang up.
    Hang,
    /// Repeats a byte until the client hangs up.
    Endless,
    /// Sends the body one byte at a time, with this pause.
    Drip(Duration),
}

impl Answer {
    pub fn new(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut all = headers.to_vec();
        let length = body.len().to_string();
        if !headers.iter().any(|(name, _)| matches!(*name, "content-length" | "transfer-encoding")) {
            all.push(("content-length", &length));
        }
        Self { bytes: [&head(status, &all), body].concat(), then: Then::Close }
    }

    pub fn ok(body: &[u8]) -> Self {
        Self::new(200, &[], body)
    }

    pub fn redirect(to: &str) -> Self {
        Self::new(307, &[("location", to)], b"")
    }

    pub fn raw(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), then: Then::Close }
    }

    pub fn and_hang(self) -> Self {
        Self { then: Then::Hang, ..self }
    }

    pub fn and_drip(self, pause: Duration) -> Self {
        Self { then: Then::Drip(pause), ..self }
    }

    /// A body without an end, with or without a length that is true.
    pub fn endless(headers: &[(&str, &str)]) -> Self {
        Self { bytes: head(200, headers), then: Then::Endless }
    }
}

fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} X\r\n{lines}\r\n").into_bytes()
}

pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Handler = dyn Fn(&Seen) -> Answer + Send + Sync;

impl Server {
    pub async fn start(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at([127, 0, 0, 1].into(), None, handler).await
    }

    pub async fn start_at(
        address: IpAddr,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, handler): (_, Arc<Handler>) = (seen.clone(), Arc::new(handler));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, handler, tls) = (log.clone(), handler.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &log, &*handler).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &log, &*handler).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, seen, task }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn count(&self, path: &str) -> usize {
        self.seen().iter().filter(|seen| seen.path.starts_with(path)).count()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn reference(&self) -> Reference {
        format!("{}/a/b:1", self.address).parse().unwrap()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<Seen>>,
    handler: &Handler,
) -> Option<()> {
    let mut head = vec![stream.read_u8().await.ok()?];
    // The client asks for TLS first.
    if head[0] == 0x16 {
        return None;
    }
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut seen = Seen { method, path, head: head.clone(), body: String::new() };
    let mut body = vec![0; seen.header("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).unwrap();
    log.lock().unwrap().push(seen.clone());
    let answer = handler(&seen);
    match answer.then {
        Then::Drip(pause) => {
            let end = answer.bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            stream.write_all(&answer.bytes[..end]).await.ok()?;
            for byte in &answer.bytes[end..] {
                stream.write_all(&[*byte]).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            }
        }
        _ => stream.write_all(&answer.bytes).await.ok()?,
    }
    stream.flush().await.ok()?;
    match answer.then {
        Then::Hang => std::future::pending().await,
        Then::Endless => loop {
            stream.write_all(&[b'x'; 4096]).await.ok()?;
        },
        _ => stream.shutdown().await.ok(),
    }
}

/// Registries may be on loopback; what they refer to may be nowhere but where they are.
pub fn options() -> RegistryOptions {
    let allow =
        |endpoint: &super::super::Endpoint, address: IpAddr| endpoint.role == Role::Registry && address.is_loopback();
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(1),
        document: Duration::from_secs(5),
        slowest_bytes_per_second: 1024 * 1024,
        retries: 2,
        backoff: Duration::from_millis(5),
        longest_retry_after: Duration::from_secs(1),
    };
    RegistryOptions { timeouts, ..RegistryOptions::new(Arc::new(allow)) }
}

pub fn client() -> Client {
    Client::new(options()).unwrap()
}

pub fn client_with_password() -> Client {
    let credentials = || Credentials::Basic { username: "me".to_owned(), password: "pw".to_owned() };
    Client::new(RegistryOptions { credentials: Arc::new(move |_| Ok(Some(credentials()))), ..options() }).unwrap()
}

/// A certificate for this host, and what a server needs to show it.
pub fn tls(host: &str) -> (TlsAcceptor, Vec<u8>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([host.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), cert.pem().into_bytes())
}
