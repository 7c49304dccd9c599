//! `sandling serve`: the HTTP server.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sandling_api::{
    App, Fleet, FleetSettings, Listener, LocalCertificate, NodeChoices, PullTemplates, ServerLimits, Telemetry, Tls,
    TrustedProxies,
};
use sandling_engine::{Engine, EngineConfig, NetworkConfig};
use sandling_service::{Service, ServiceSettings};
use sandling_wire::{Home, TOKEN_VARIABLE, local_token_path};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use super::config;
use crate::client::announce::{self, Announcement};
use crate::client::local::StartMark;
use crate::options::{Common, Listening, Serve};

/// The domain of `--tls self`. Browsers resolve names below `localhost` to this machine. A certificate for
/// `*.localhost` would not do: some clients accept no wildcard directly below a top-level name.
const LOCAL_DOMAIN: &str = "sandling.localhost";

pub async fn serve(common: &Common, options: &Serve, mut telemetry: Option<Telemetry>) -> anyhow::Result<()> {
    check(&options.listening)?;
    let network = NetworkConfig { builds: options.build.build_network.clone(), ..options.operator.config(common)? };
    let config = EngineConfig {
        standbys: options.standbys,
        spare_memory_mib: options.spare_memory.into(),
        hibernate_after: (options.hibernate_after > 0).then(|| Duration::from_secs(options.hibernate_after)),
        takeover: true,
        network,
        ..config(common)?
    };
    let home = config.home.clone();
    let fleet = FleetSettings::load(&home)?;
    let starting = StartMark::set(&home).context("cannot write to the home directory")?;
    announce::wait_for_shutdown(&home).await;
    let engine = Engine::open(config).await?;
    let service = Service::open(
        engine.clone(),
        ServiceSettings {
            audit: options.audit.settings(),
            images: options.images.settings()?,
            webhooks_allow_private: options.webhook_allow_private,
            ..ServiceSettings::from_environment()
        },
    )?;
    let app = App::new(engine.clone(), service.clone());
    if let Some(telemetry) = &mut telemetry {
        telemetry.watch(app.clone());
    }
    let (mut listeners, address) = listen(&home, &options.listening)?;
    let node = match fleet {
        Some(settings) => {
            let pulls = options.pull_templates.as_deref().map(pull_templates);
            let choices = NodeChoices { pulls, failover_every: Duration::from_secs(options.failover_every) };
            Some(become_node(settings, &home, &engine, &app, &mut listeners, choices).await?)
        }
        None => {
            if options.pull_templates.is_some() {
                eprintln!("sandling: this machine is in no fleet, so --pull-templates has no effect");
            }
            engine.end_moves_without_fleet();
            None
        }
    };
    println!("the token is in {}", local_token_path(&home).display());
    let announced =
        Announcement::publish(&home, address).context("cannot write the server's address to the home directory")?;
    drop(starting);
    if announced.is_none() {
        eprintln!(
            "sandling: another server already serves this home, and commands use that one; to use this one, set \
             SANDLING_API=http://{address}"
        );
    }
    let terminated = terminated()?;
    let idle = idle(app.clone(), options.idle_exit.map(Duration::from_secs));
    let ending = &announced;
    let shutdown = async move {
        tokio::select! {
            () = terminated => {}
            () = idle => {}
        }
        // Withdraw the address before draining, because new requests are refused from now on.
        ending.iter().for_each(|announced| announced.close());
    };
    let proxies = TrustedProxies::new(options.listening.trusted_proxies.clone());
    sandling_api::serve(listeners, app.clone(), ServerLimits { proxies, ..ServerLimits::default() }, shutdown).await;
    if let Some(node) = node {
        node.membership.abort();
        node.fleet.stop_engine().await;
    }
    service.audit.flush();
    if let Some(telemetry) = telemetry {
        telemetry.shutdown(&app).await;
    }
    // Sandboxes keep running; the next server takes them over.
    engine.detach().await;
    drop(announced);
    Ok(())
}

/// What `--pull-templates` stands for. Without names, that is what is in use.
fn pull_templates(names: &[String]) -> PullTemplates {
    let names: BTreeSet<_> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
    if names.is_empty() { PullTemplates::Used } else { PullTemplates::Named(names) }
}

/// What a server has because it is a node of a fleet.
struct Node {
    membership: JoinHandle<()>,
    fleet: Arc<Fleet>,
}

async fn become_node(
    settings: FleetSettings,
    home: &Home,
    engine: &Engine,
    app: &Arc<App>,
    listeners: &mut Vec<Listener>,
    choices: NodeChoices,
) -> anyhow::Result<Node> {
    let (listener, _) = bind_for_nodes(&settings.address).await?;
    println!("node {} of a fleet; other nodes reach it at {}", settings.name, settings.address);
    let fleet = Fleet::new(settings, home, engine, choices)?;
    if let Some(address) = fleet.start_engine().await? {
        println!("the fleet's etcd runs here; other nodes reach it at {address}");
    }
    listeners.push(Listener::for_nodes(listener, fleet.tls()));
    fleet.attach(app);
    let (app, node) = (app.clone(), fleet.clone());
    Ok(Node { membership: tokio::spawn(async move { node.keep(&app).await }), fleet })
}

/// Opens the listeners and says how to reach them. Returns the address for commands on this machine.
///
/// With TLS, the server also listens on a loopback port without TLS. So commands on this machine need neither the
/// domain nor the certificate.
fn listen(home: &Home, options: &Listening) -> anyhow::Result<(Vec<Listener>, SocketAddr)> {
    let (public, address) = bind(options.listen)?;
    let public = Listener::plain(public);
    if !options.has_tls() {
        println!("sandling listens on http://{address}");
        if !address.ip().is_loopback() {
            println!("the connection is not encrypted: anybody on the network can read the tokens that clients send");
        }
        let public = match &options.domain {
            Some(domain) => public.at_domain(domain),
            None => public,
        };
        return Ok((vec![public], address));
    }
    let local = options.tls.map(|_| local_certificate(home, options)).transpose()?;
    let tls = match (&local, &options.tls_cert, &options.tls_key) {
        (Some(local), ..) => local.tls()?,
        (None, Some(certificate), Some(key)) => Tls::from_files(certificate, key)?,
        _ => bail!("--tls-cert and --tls-key belong together"),
    };
    let public = public.with_tls(tls);
    let (plain, local_address) = bind((Ipv4Addr::LOCALHOST, 0).into())?;
    println!("sandling listens on https://{address}");
    let public = match domain(options) {
        Some(domain) => {
            let port = address.port();
            println!("the API is at https://api.{domain}:{port}, ports are at https://PORT-ID.{domain}:{port}");
            println!("E2B's clients need a key and: export E2B_DOMAIN={domain}:{port}");
            public.at_domain(domain)
        }
        None => public,
    };
    if let Some(local) = local {
        println!("clients must trust the certificate authority of this home:");
        println!("  export SSL_CERT_FILE={}", local.trust().display());
        println!("  export NODE_EXTRA_CA_CERTS={}", local.authority_certificate().display());
    }
    println!("commands on this machine use http://{local_address}");
    Ok((vec![public, Listener::plain(plain)], local_address))
}

/// Connections that wait to be accepted. The kernel drops what comes after them, and a client tries again only after
/// one, three and seven seconds.
const BACKLOG: u32 = 4096;

fn bind(wanted: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let open = || {
        let socket = if wanted.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(wanted)?;
        socket.listen(BACKLOG)
    };
    let listener = open().with_context(|| format!("cannot listen on {wanted}"))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn bind_for_nodes(address: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let mut found = tokio::net::lookup_host(address).await.with_context(|| format!("cannot resolve {address}"))?;
    bind(found.next().with_context(|| format!("{address} has no address"))?)
}

fn domain(options: &Listening) -> Option<&str> {
    options.domain.as_deref().or(options.tls.map(|_| LOCAL_DOMAIN))
}

fn local_certificate(home: &Home, options: &Listening) -> anyhow::Result<LocalCertificate> {
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let ip = options.listen.ip();
    if !ip.is_unspecified() && !addresses.contains(&ip) {
        addresses.push(ip);
    }
    let domain = domain(options).unwrap_or(LOCAL_DOMAIN);
    Ok(LocalCertificate::create(&home.tls(), domain, &addresses)?)
}

/// Waits until the server has been idle for this long.
async fn idle(app: Arc<App>, after: Option<Duration>) {
    match after {
        Some(after) => app.idle(after).await,
        None => std::future::pending().await,
    }
}

/// Requires TLS and an explicit token before listening on an address that other machines can reach.
fn check(options: &Listening) -> anyhow::Result<()> {
    let listen = options.listen;
    if listen.ip().is_loopback() {
        return Ok(());
    }
    if std::env::var_os(TOKEN_VARIABLE).is_none_or(|token| token.is_empty()) {
        bail!("other machines can reach {listen}; set {TOKEN_VARIABLE} to a secret first");
    }
    if !options.has_tls() && !options.insecure {
        bail!(
            "other machines can reach {listen}, and without TLS anybody on the network can read your token; use \
             --tls self, or --tls-cert and --tls-key, or --insecure if a proxy adds TLS"
        );
    }
    Ok(())
}

fn terminated() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminations = signal(SignalKind::terminate())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminations.recv() => {}
            _ = interrupts.recv() => {}
        }
    })
}
