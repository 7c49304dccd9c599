//! A guest, its gateway, and the servers around them.

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

/// The address of both example.com and other.com, shared as by large hosts.
pub const SHARED: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// An address without a name.
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 156);

/// Everything that a test needs.
pub struct World {
    pub guest: Guest,
    pub gateway: Option<GatewayHandle>,
    pub events: mpsc::Receiver<Event>,
    pub log: Log,
    pub zone: Zone,
    /// The servers' authority.
    pub authority_pem: String,
    /// The sandbox's authority.
    pub own_authority: Arc<Authority>,
    pub directory: TempDir,
}

/// A policy that allows these entries.
pub fn allow(entries: &[&str]) -> Policy {
    Policy::allow(entries.iter().map(|entry| entry.parse().unwrap()))
}

impl World {
    /// A world whose guest has this policy.
    pub async fn new(policy: Policy) -> World {
        World::with(policy, |_| {}).await
    }

    /// A world whose guest may reach the whole public internet.
    pub async fn open() -> World {
        World::new(Policy::of(Mode::Open)).await
    }

    /// A world whose gateway is configured further.
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
        let own_authority = Arc::new(Authority::generate().unwrap());
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

    /// Replaces the gateway by a new one, as a restarted daemon does.
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

    /// The configuration of a gateway in this world.
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

    /// Replaces the policy.
    pub fn set_policy(&self, policy: Policy) {
        self.gateway().set_policies(policy, None);
    }

    /// The next event of this kind that matches `wanted`.
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

    /// Waits for a refusal with this reason.
    pub async fn refused(&mut self, kind: EventKind, why: Refusal) -> Event {
        self.event(kind, |event| event.verdict == Verdict::Refused(why)).await
    }

    /// Checks that no server was reached, after a short wait.
    pub async fn nobody_was_reached(&self) -> bool {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.log.lock().unwrap().visits.is_empty()
    }

    /// Heads of the requests that servers received.
    pub fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Names that left the host as queries.
    pub fn asked(&self) -> Vec<String> {
        self.log.lock().unwrap().queries.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Sends a request to `address`, and returns everything up to the end of the connection.
    pub async fn http(&self, address: Ipv4Addr, port: u16, request: &str) -> std::io::Result<String> {
        let stream = self.guest.connect(address, port).await?;
        exchange(stream, request).await
    }

    /// TLS to `address` with this `name`. The client trusts the servers' authority and the sandbox's.
    pub async fn tls(&self, address: Ipv4Addr, name: &str) -> std::io::Result<TlsStream<Stream>> {
        self.tls_offering(address, name, &[]).await
    }

    /// TLS that also offers protocols.
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

    /// The TLS configuration of a guest in this world.
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

    /// Sends a request inside TLS to `name` at the shared address, and returns the whole response.
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

/// Sends a request and reads the response: its head, and the body by its length.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &str) -> std::io::Result<String> {
    say(&mut stream, request).await
}

/// Sends a request and reads the response, on a connection that stays open.
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
