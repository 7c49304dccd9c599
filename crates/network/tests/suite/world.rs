//! A guest, its gateway, and a world of servers around them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use sandling_network::policy::{Mode, Policy, Refusal};
use sandling_network::{
    Authority, Cable, Event, EventKind, Gateway, GatewayConfig, GatewayHandle, Interception, SystemResolver,
    TrustRoots, Verdict,
};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::guest::{Guest, PATIENCE, Stream};
use crate::servers::{self, DNS, Log, Zone};

/// Where example.com and other.com both are: a shared address, as large hosts have.
pub const SHARED: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Where nobody's name points.
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 156);

/// Everything a test needs.
pub struct World {
    pub guest: Guest,
    pub gateway: Option<GatewayHandle>,
    pub events: mpsc::Receiver<Event>,
    pub log: Log,
    pub zone: Zone,
    /// Of the servers.
    pub authority_pem: String,
    /// Of the sandbox.
    pub own_authority: Arc<Authority>,
    pub directory: TempDir,
}

/// A policy that allows these entries.
pub fn allow(entries: &[&str]) -> Policy {
    Policy::allow(entries.iter().map(|entry| entry.parse().unwrap()))
}

impl World {
    /// A guest under this policy.
    pub async fn new(policy: Policy) -> World {
        World::with(policy, |_| {}).await
    }

    /// A guest that may reach all of the public internet.
    pub async fn open() -> World {
        World::new(Policy::of(Mode::Open)).await
    }

    /// A guest whose gateway is set up further.
    pub async fn with(policy: Policy, adjust: impl FnOnce(&mut GatewayConfig)) -> World {
        let (log, zone) = (Log::default(), Zone::default());
        for (name, address) in [
            ("example.com", SHARED),
            ("other.com", SHARED),
            ("*.example.com", SHARED),
            ("evil.com", SHARED),
            ("rebind.com", Ipv4Addr::new(169, 254, 169, 254)),
        ] {
            zone.lock().unwrap().insert(name.to_owned(), vec![address]);
        }
        let tls = servers::tls();
        servers::start(&log, &zone, tls.acceptor).await;
        let directory = tempfile::tempdir().unwrap();
        let own_authority = Arc::new(Authority::generate("test").unwrap());
        let mut world = World {
            guest: guest(&directory, "machine", "gateway"),
            gateway: None,
            events: mpsc::channel(1).1,
            log,
            zone,
            authority_pem: tls.authority_pem,
            own_authority,
            directory,
        };
        world.start(policy, adjust);
        world
    }

    /// Starts another gateway in place of this one, as a daemon that comes back does.
    pub fn start(&mut self, policy: Policy, adjust: impl FnOnce(&mut GatewayConfig)) {
        drop(self.gateway.take());
        let mut config = self.config("gateway", "machine");
        let (tell, events) = mpsc::channel(4096);
        config.policy = policy;
        config.events = Some(tell);
        adjust(&mut config);
        self.events = events;
        self.gateway = Some(Gateway::start(config).unwrap());
    }

    /// What a gateway of this world starts with.
    pub fn config(&self, gateway: &str, machine: &str) -> GatewayConfig {
        let resolver = Arc::new(SystemResolver::of_servers(&[DNS]).unwrap());
        let path = |name: &str| self.directory.path().join(name);
        let mut config = GatewayConfig::new(Cable::Named { gateway: path(gateway), machine: path(machine) }, resolver);
        let roots = TrustRoots::none().and(&self.authority_pem).unwrap();
        config.interception = Some(Interception { authority: self.own_authority.clone(), roots });
        config
    }

    /// The gateway.
    pub fn gateway(&self) -> &GatewayHandle {
        self.gateway.as_ref().unwrap()
    }

    /// Changes the policy, at once.
    pub fn set_policy(&self, policy: Policy) {
        self.gateway().set_policies(policy, None);
    }

    /// The next event of this kind that `wanted` recognises.
    pub async fn event(&mut self, kind: EventKind, wanted: impl Fn(&Event) -> bool) -> Event {
        let found = async {
            loop {
                let event = self.events.recv().await.expect("the gateway is gone");
                if event.kind == kind && wanted(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("no such event")
    }

    /// Waits until something was refused for this reason.
    pub async fn refused(&mut self, kind: EventKind, why: Refusal) -> Event {
        self.event(kind, |event| event.verdict == Verdict::Refused(why)).await
    }

    /// Whether nobody was connected to, given a moment to be so.
    pub async fn nobody_was_reached(&self) -> bool {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.log.lock().unwrap().visits.is_empty()
    }

    /// Heads of the requests that servers got.
    pub fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Names that left the host.
    pub fn asked(&self) -> Vec<String> {
        self.log.lock().unwrap().queries.iter().map(|(name, _)| name.clone()).collect()
    }

    /// A request to `address`, and the whole answer to the end of the connection.
    pub async fn http(&self, address: Ipv4Addr, port: u16, request: &str) -> std::io::Result<String> {
        let stream = self.guest.connect(address, port).await?;
        exchange(stream, request).await
    }

    /// TLS to `address` that shows `name`, trusting the servers' authority and the sandbox's.
    pub async fn tls(&self, address: Ipv4Addr, name: &str) -> std::io::Result<TlsStream<Stream>> {
        self.tls_offering(address, name, &[]).await
    }

    /// The same, offering protocols.
    pub async fn tls_offering(
        &self,
        address: Ipv4Addr,
        name: &str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<Stream>> {
        let stream = self.guest.connect(address, 443).await?;
        let mut config = self.tls_config();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// TLS as a guest of this world speaks it.
    pub fn tls_config(&self) -> rustls::ClientConfig {
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        for pem in [&self.authority_pem, self.own_authority.certificate_pem()] {
            roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        builder.unwrap().with_root_certificates(roots).with_no_client_auth()
    }

    /// A request inside TLS to `name` at the shared address, and the whole answer.
    pub async fn https(&self, name: &str, request: &str) -> std::io::Result<String> {
        let stream = self.tls(SHARED, name).await?;
        exchange(stream, request).await
    }
}

/// A guest at one end of a cable in `directory`.
pub fn guest(directory: &TempDir, machine: &str, gateway: &str) -> Guest {
    let path = |name: &str| directory.path().join(name);
    Guest::start(path(machine), path(gateway), Default::default(), 1500)
}

/// Sends a request and reads the answer: its head, and the body by its length.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &str) -> std::io::Result<String> {
    say(&mut stream, request).await
}

/// The same on a connection that goes on.
pub async fn say<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                return Ok(text);
            }
        }
        let mut room = [0; 4096];
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut room))
            .await
            .map_err(|_| std::io::ErrorKind::TimedOut)??;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&room[..count]);
    }
}
