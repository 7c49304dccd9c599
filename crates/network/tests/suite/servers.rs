//! Servers on every address of the namespace. They record connections and requests.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;

/// The address of the test's name server.
pub const DNS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5300);

/// What the servers saw.
#[derive(Default)]
pub struct Seen {
    /// Addresses and ports that got a connection or a datagram.
    pub visits: Vec<SocketAddr>,
    /// Names and types that the name server was queried for.
    pub queries: Vec<(String, RecordType)>,
    /// Heads of HTTP requests.
    pub requests: Vec<String>,
    /// Connections with a request that is never answered.
    pub waiting: usize,
}

pub type Log = Arc<Mutex<Seen>>;
pub type Zone = Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>;

/// The servers' certificate authority, and their certificates.
pub struct Tls {
    pub authority_pem: String,
    pub acceptor: TlsAcceptor,
}

/// Creates certificates for all names in the tests.
pub fn tls() -> Tls {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose subject and issuer are the same for a self-signed one.
    params.distinguished_name.push(DnType::CommonName, "the authority of the tests");
    let authority_pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let names = ["example.com", "*.example.com", "other.com", "evil.com"].map(str::to_owned);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    Tls { authority_pem, acceptor: TlsAcceptor::from(Arc::new(config)) }
}

/// Starts all servers.
pub async fn start(log: &Log, zone: &Zone, acceptor: TlsAcceptor) {
    for port in [80, 8080] {
        serve(port, log, http).await;
    }
    serve(443, log, move |stream, log| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                http(stream, log).await;
            }
        }
    })
    .await;
    serve(22, log, |mut stream, _| async move {
        let _ = stream.write_all(b"SSH-2.0-test\r\n").await;
        echo(stream).await;
    })
    .await;
    for port in [7, 53, 853, 8853, 25] {
        serve(port, log, |stream, _| echo(stream)).await;
    }
    serve(19, log, |stream, _| generate(stream)).await;
    serve(9, log, |stream, _| discard(stream)).await;
    for port in [53, 80, 123, 443, 853, 5353, 8853, 9999] {
        let (socket, log) = (UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).await.unwrap(), log.clone());
        tokio::spawn(async move {
            let mut room = [0; 2048];
            // Reply from the address that the datagram was sent to.
            while let Ok((count, from)) = socket.recv_from(&mut room).await {
                log.lock().unwrap().visits.push(socket.local_addr().unwrap());
                let _ = socket.send_to(&room[..count], from).await;
            }
        });
    }
    dns(log.clone(), zone.clone()).await;
}

async fn serve<F, T>(port: u16, log: &Log, then: F)
where
    F: Fn(TcpStream, Log) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (listener, log) = (TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.unwrap(), log.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            log.lock().unwrap().visits.push(stream.local_addr().unwrap());
            tokio::spawn(then(stream, log.clone()));
        }
    });
}

async fn echo(mut stream: TcpStream) {
    let (mut from, mut to) = stream.split();
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

/// The byte at a position of the stream that `generate` sends and `discard` expects.
pub fn byte_at(place: u64) -> u8 {
    (place % 251) as u8
}

/// Sends as many bytes as requested, then ends.
async fn generate(mut stream: TcpStream) {
    let Ok(count) = stream.read_u64().await else { return };
    let mut sent = 0;
    while sent < count {
        let size = (count - sent).min(251 * 256);
        let chunk: Vec<u8> = (sent..sent + size).map(byte_at).collect();
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
        sent += size;
    }
    let _ = stream.shutdown().await;
}

/// Receives all bytes, and returns how many were right.
async fn discard(mut stream: TcpStream) {
    let (mut room, mut place, mut right) = (vec![0; 65536], 0, 0u64);
    while let Ok(count) = stream.read(&mut room).await {
        if count == 0 {
            let _ = stream.write_u64(right).await;
            let _ = stream.shutdown().await;
            return;
        }
        right +=
            room[..count].iter().enumerate().filter(|(at, byte)| **byte == byte_at(place + *at as u64)).count() as u64;
        place += count as u64;
    }
}

/// An HTTP/1.1 server. It answers each request with the request's own head, except for some paths.
async fn http<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, log: Log) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            let mut room = [0; 4096];
            match stream.read(&mut room).await {
                Ok(count) if count > 0 => read.extend_from_slice(&room[..count]),
                _ => return,
            }
        };
        let mut head = String::from_utf8_lossy(&read[..end]).into_owned();
        read.drain(..end);
        if head.starts_with("POST /read") {
            let Some(body) = body(&mut stream, &mut read, &head).await else { return };
            head += &body;
        }
        let before = log.lock().unwrap().requests.last().cloned().unwrap_or_default();
        log.lock().unwrap().requests.push(head.clone());
        if head.starts_with("GET /never") {
            log.lock().unwrap().waiting += 1;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            log.lock().unwrap().waiting -= 1;
            return;
        }
        if stream.write_all(&answer(&head, &before)).await.is_err() {
            return;
        }
        if head.starts_with("GET /socket") {
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut room).await {
                let _ = stream.write_all(&room[..count]).await;
            }
            return;
        }
    }
}

/// The body of a request, by its length. None if it is incomplete.
async fn body<S: AsyncRead + Unpin>(stream: &mut S, read: &mut Vec<u8>, head: &str) -> Option<String> {
    let lower = head.to_ascii_lowercase();
    let length: usize = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    while read.len() < length {
        let mut room = [0; 4096];
        match stream.read(&mut room).await {
            Ok(count) if count > 0 => read.extend_from_slice(&room[..count]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&read.drain(..length).collect::<Vec<_>>()).into_owned())
}

/// Ways in which a server may repeat a key.
pub fn forms(key: &str) -> Vec<String> {
    let each = |write: fn(u8) -> String| key.bytes().map(write).collect::<String>();
    vec![
        each(|byte| format!("\\u{byte:04x}")),
        each(|byte| format!("&#{byte};")),
        each(|byte| format!("%{byte:02x}")),
        each(|byte| format!("{byte:02X}")),
        each(|byte| format!("{}\0", char::from(byte))),
    ]
}

fn answer(head: &str, before: &str) -> Vec<u8> {
    let key = head.lines().find_map(|line| line.strip_prefix("X-Key: ")).unwrap_or_default();
    let head = if head.starts_with("GET /redirect") {
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else if head.starts_with("GET /socket") {
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".to_owned()
    } else if head.starts_with("GET /gzip") {
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc".to_owned()
    } else if head.starts_with("GET /h2c") {
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_owned()
    } else if head.starts_with("GET /before") {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{before}", before.len())
    } else if head.starts_with("GET /forms") {
        let text = forms(key).join("\n");
        format!("HTTP/1.1 200 OK\r\nX-Echo: {}\r\nContent-Length: {}\r\n\r\n{text}", forms(key)[0], text.len())
    } else if head.starts_with("GET /part") {
        let part = &key[..key.len().min(10)];
        format!("HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\r\n{part}", part.len())
    } else if head.starts_with("GET /phrase") {
        format!("HTTP/1.1 401 no such key: {key}\r\nX-{key}: 1\r\nContent-Length: 0\r\n\r\n")
    } else if head.starts_with("GET /trailers") {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n";
        format!("{head}8\r\nto the h\r\n0\r\nX-End: 1\r\n\r\n")
    } else {
        let first = head.lines().next().unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nX-First: {first}\r\nContent-Length: {}\r\n\r\n{head}", head.len())
    };
    head.into_bytes()
}

async fn dns(log: Log, zone: Zone) {
    let socket = UdpSocket::bind(DNS).await.unwrap();
    tokio::spawn(async move {
        let mut room = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut room).await {
            let answer = resolve(&Message::from_vec(&room[..count]).unwrap(), &log, &zone);
            let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
        }
    });
}

fn resolve(asked: &Message, log: &Log, zone: &Zone) -> Message {
    let query = asked.queries[0].clone();
    let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
    log.lock().unwrap().queries.push((name.clone(), query.query_type()));
    let mut answer = Message::response(asked.metadata.id, OpCode::Query);
    answer.add_query(query.clone());
    let zone = zone.lock().unwrap();
    let wildcard = name.split_once('.').and_then(|(_, parent)| zone.get(&format!("*.{parent}")));
    let Some(addresses) = zone.get(&name).or(wildcard) else {
        answer.metadata.response_code = ResponseCode::NXDomain;
        return answer;
    };
    for address in addresses {
        answer.add_answer(Record::from_rdata(query.name().clone(), 1, RData::A(A(*address))));
    }
    answer
}
