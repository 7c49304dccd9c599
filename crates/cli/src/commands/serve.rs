//! `sandling serve`: the HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sandling_api::{App, ServerLimits};
use sandling_engine::{Engine, EngineConfig, NetworkConfig};
use sandling_service::{Service, ServiceSettings};
use sandling_wire::{TOKEN_VARIABLE, local_token_path};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::config;
use crate::client::announce::{self, Announcement};
use crate::options::{Common, Serve};

pub async fn serve(common: &Common, options: &Serve) -> anyhow::Result<()> {
    check(options.listen)?;
    let network = NetworkConfig { builds: options.build_network.clone(), ..options.operator.config()? };
    let config = EngineConfig {
        standbys: options.standbys,
        spare_memory_mib: options.spare_memory,
        hibernate_after: (options.hibernate_after > 0).then(|| Duration::from_secs(options.hibernate_after)),
        takeover: true,
        network,
        ..config(common)?
    };
    let home = config.home.clone();
    announce::wait_for_shutdown(&home).await;
    let engine = Engine::open(config).await?;
    let service = Service::open(engine.clone(), ServiceSettings::from_environment())?;
    let app = App::new(engine.clone(), service);
    let listener =
        TcpListener::bind(options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    println!("sandling listens on http://{address}");
    println!("the token is in {}", local_token_path(&home).display());
    let announced =
        Announcement::publish(&home, address).context("cannot write the server's address to the home directory")?;
    if announced.is_none() {
        eprintln!("sandling: another server already serves this home; set SANDLING_API to reach this one");
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
    sandling_api::serve(listener, app, ServerLimits::default(), shutdown).await;
    // Sandboxes keep running; the next server takes them over.
    engine.detach().await;
    drop(announced);
    Ok(())
}

/// Waits until the server has been idle for this long.
async fn idle(app: Arc<App>, after: Option<Duration>) {
    match after {
        Some(after) => app.idle(after).await,
        None => std::future::pending().await,
    }
}

/// Requires an explicit token before listening on an address that other machines can reach.
fn check(listen: SocketAddr) -> anyhow::Result<()> {
    if !listen.ip().is_loopback() && std::env::var_os(TOKEN_VARIABLE).is_none_or(|token| token.is_empty()) {
        bail!("other machines can reach {listen}; set {TOKEN_VARIABLE} to a secret first");
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
