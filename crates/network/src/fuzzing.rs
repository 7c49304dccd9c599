//! The parsers of hostile bytes, for fuzzing and benchmarks. No part of the crate's API.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::runtime::{Builder, Runtime};

pub use crate::dns::{Answer, read as read_dns};
pub use crate::frame::{Inbound, lease, read as read_frame, reset, udp, unreachable};
pub use crate::http::{GuestFrames, Pattern, Scrubber, Search, ServerFrames};
pub use crate::tcp::{Greeting, classify};
pub use crate::tls::Hello;
pub use crate::udp::is_quic;

use crate::config::GatewayConfig;
use crate::destination::Destination;
use crate::dns::{ResolveError, Resolved, Resolver};
use crate::gateway::{Gateway, GatewayHandle};
use crate::http;
use crate::link::Cable;
use crate::name::HostName;
use crate::policy::{Mode, Policy};
use crate::secret::SecretSet;
use crate::session::Session;
use crate::tcp::Connection;

/// The address of the server.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// A relay that takes longer waits for something that never comes. The clock of the test runtime jumps there.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const ROOM: usize = 64 * 1024;

/// The HTTP proxy, between a guest and a server in memory.
pub struct HttpProxy {
    runtime: Runtime,
    gateway: GatewayHandle,
    // The gateway would notice if the machine's end were gone.
    _machine: UnixDatagram,
}

/// What came out of the proxy.
pub struct Relayed {
    pub to_server: Vec<u8>,
    pub to_guest: Vec<u8>,
}

struct NoNames;

impl Resolver for NoNames {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
        Box::pin(std::future::ready(Err(ResolveError::NoSuchName)))
    }
}

impl HttpProxy {
    /// A proxy whose guest may reach everything and has these secrets.
    pub fn new(secrets: SecretSet) -> HttpProxy {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let (own, machine) = UnixDatagram::pair().expect("a pair of sockets");
        let mut config = GatewayConfig::new(Cable::Pair(own), Arc::new(NoNames));
        config.policy = Policy::of(Mode::Open);
        config.secrets = secrets;
        let gateway = runtime.block_on(async { Gateway::start(config) }).expect("a gateway");
        HttpProxy { runtime, gateway, _machine: machine }
    }

    /// Relays the bytes of a guest and of its server. `opened` is the name of an intercepted TLS connection. Panics if
    /// the relay never ends.
    pub fn relay(&self, opened: Option<&HostName>, sent: &[u8], answered: &[u8]) -> Relayed {
        let port = if opened.is_some() { 443 } else { 80 };
        let names = opened.cloned().into_iter().collect();
        let destination = Destination { address: ADDRESS, port, names, peer: None };
        let shared = self.gateway.shared();
        let relay = async {
            let connection = Connection::accepting(&shared.link, ADDRESS, port, 1024).expect("a connection");
            let session = Session::new(shared, Arc::new(connection), destination);
            let ((guest, guest_end), (server, server_end)) = (duplex(ROOM), duplex(ROOM));
            let relay = http::relay(&session, opened.cloned(), None, guest, server);
            let (_, to_guest, to_server) =
                tokio::join!(relay, exchange(guest_end, sent, true), exchange(server_end, answered, false));
            Relayed { to_server, to_guest }
        };
        let within = async { tokio::time::timeout(LONGEST, relay).await };
        self.runtime.block_on(within).expect("the relay ends when both sides have ended")
    }
}

/// Writes bytes, and returns what was read until the end. A server writes after it has read something.
async fn exchange(end: DuplexStream, bytes: &[u8], first: bool) -> Vec<u8> {
    let (mut reader, mut writer) = split(end);
    let mut read = Vec::new();
    if !first && !matches!(reader.read_buf(&mut read).await, Ok(1..)) {
        return read;
    }
    let write = async {
        // The proxy may end before it has read everything.
        let _ = writer.write_all(bytes).await;
        let _ = writer.shutdown().await;
    };
    let (_, _) = tokio::join!(write, reader.read_to_end(&mut read));
    read
}
