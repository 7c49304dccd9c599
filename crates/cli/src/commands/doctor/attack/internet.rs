//! Servers on loopback that stand for the internet, and what reached them.
//!
//! The private server treats a part of loopback as public, so these attacks need no other network and no privilege.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Where the allowed name is.
pub const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);
/// A public address that no policy lists.
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 2);
/// An address of the host that the operator did not open.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(127, 67, 0, 1);
/// The name that policies list, and other names.
pub const NAME: &str = "allowed.test";
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const OF_A_LAN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The zone of the name server. `flip.allowed.test` answers differently each time.
const ZONE: &[(&str, &[Ipv4Addr])] = &[
    (NAME, &[ALLOWED]),
    ("other.test", &[ALLOWED]),
    ("stranger.test", &[STRANGER]),
    ("loopback.allowed.test", &[Ipv4Addr::LOCALHOST]),
    ("private.allowed.test", &[PRIVATE]),
    ("metadata.allowed.test", &[METADATA]),
    ("lan.allowed.test", &[OF_A_LAN]),
    ("mixed.allowed.test", &[ALLOWED, Ipv4Addr::LOCALHOST]),
];
const FLIP: &str = "flip.allowed.test";

type Log = Arc<Mutex<Vec<String>>>;

pub struct Internet {
    port: u16,
    other_port: u16,
    name_server: SocketAddr,
    log: Log,
    queries: Log,
}

impl Internet {
    pub async fn start() -> anyhow::Result<Self> {
        let (log, queries) = (Log::default(), Log::default());
        let first = TcpListener::bind((ALLOWED, 0)).await?;
        let port = first.local_addr()?.port();
        let other = TcpListener::bind((ALLOWED, 0)).await?;
        let other_port = other.local_addr()?.port();
        let mut listeners = vec![first, other];
        for address in [STRANGER, PRIVATE, Ipv4Addr::LOCALHOST] {
            listeners.push(TcpListener::bind((address, port)).await?);
        }
        // Not every host has IPv6.
        listeners.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await.ok());
        for listener in listeners {
            tokio::spawn(serve(listener, log.clone()));
        }
        for address in [ALLOWED, STRANGER, PRIVATE, Ipv4Addr::LOCALHOST] {
            tokio::spawn(echo(UdpSocket::bind((address, port)).await?, log.clone()));
        }
        let names = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let name_server = names.local_addr()?;
        tokio::spawn(answer_names(names, queries.clone()));
        Ok(Self { port, other_port, name_server, log, queries })
    }

    /// The port of all servers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Another port at the allowed address, which the policy does not list.
    pub fn other_port(&self) -> u16 {
        self.other_port
    }

    pub fn name_server(&self) -> SocketAddr {
        self.name_server
    }

    /// What the attacker's sandbox may reach.
    pub fn allow_list(&self) -> Vec<String> {
        vec![format!("{NAME}:{}", self.port), format!("*.{NAME}:{}", self.port)]
    }

    /// The first server that received this marker.
    pub fn reached(&self, marker: &str) -> Option<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|seen| seen.contains(marker)).cloned()
    }

    /// Whether a query that contains this text left the gateway.
    pub fn was_asked(&self, text: &str) -> bool {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|name| name.contains(text))
    }
}

fn note(log: &Log, at: SocketAddr, bytes: &[u8]) {
    let text = format!("{at} {}", String::from_utf8_lossy(bytes));
    log.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

async fn serve(listener: TcpListener, log: Log) {
    let Ok(at) = listener.local_addr() else { return };
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, at, log.clone()));
    }
}

/// Answers each piece that arrives, for as long as the client keeps the connection.
async fn answer(mut stream: TcpStream, at: SocketAddr, log: Log) {
    let mut buffer = [0; 4096];
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut buffer)).await {
        note(&log, at, &buffer[..length]);
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nREACHED\n";
        if stream.write_all(reply).await.is_err() {
            return;
        }
    }
}

async fn echo(socket: UdpSocket, log: Log) {
    let Ok(at) = socket.local_addr() else { return };
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        note(&log, at, &buffer[..length]);
        let _ = socket.send_to(b"REACHED", from).await;
    }
}

async fn answer_names(socket: UdpSocket, queries: Log) {
    let mut buffer = [0; 4096];
    let mut flips = 0;
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let Some((name, kind, end)) = question(&buffer[..length]) else { continue };
        queries.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        let found = match ZONE.iter().find(|(known, _)| *known == name) {
            Some((_, addresses)) => Some(addresses.to_vec()),
            None if name == FLIP => {
                flips += 1;
                Some(vec![if flips == 1 { ALLOWED } else { Ipv4Addr::LOCALHOST }])
            }
            None => None,
        };
        let _ = socket.send_to(&response(&buffer[..end], found.as_deref(), kind), from).await;
    }
}

/// The name and the type of the only question, and where it ends.
fn question(message: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = message.get(at..at + 2)?;
    message.get(at..at + 4)?;
    Some((labels.join("."), u16::from_be_bytes([kind[0], kind[1]]), at + 4))
}

fn response(query: &[u8], addresses: Option<&[Ipv4Addr]>, kind: u16) -> Vec<u8> {
    const NAME_ERROR: u8 = 3;
    let is_address = kind == 1;
    let answers = addresses.filter(|_| is_address).unwrap_or_default();
    let mut message = query.to_vec();
    message[2] = 0x85;
    message[3] = 0x80 | if addresses.is_none() { NAME_ERROR } else { 0 };
    message[4..12].copy_from_slice(&[0, 1, 0, answers.len() as u8, 0, 0, 0, 0]);
    for address in answers {
        // A pointer to the question's name, type A, class IN, one second to live.
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        message.extend_from_slice(&address.octets());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_answered_with_its_addresses() {
        let query = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x07Allowed\x04test\0\0\x01\0\x01\0\0\x29";
        let (name, kind, end) = question(query).unwrap();
        assert_eq!((name.as_str(), kind, end), (NAME, 1, 30));
        let answer = response(&query[..end], Some(&[ALLOWED]), kind);
        assert_eq!(&answer[..12], b"\x12\x34\x85\x80\0\x01\0\x01\0\0\0\0");
        assert!(answer.ends_with(&[0, 4, 127, 66, 0, 1]));
        assert_eq!(response(&query[..end], None, kind)[3] & 15, 3);
        assert_eq!(question(&query[..20]), None);
    }
}
