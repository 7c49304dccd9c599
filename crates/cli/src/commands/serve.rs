//! `sandling serve`: the daemon.

use std::net::SocketAddr;
use std::process::ExitCode;
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

pub async fn serve(common: &Common, options: &Serve) -> anyhow::Result<ExitCode> {
    check(options.listen)?;
    let network = NetworkConfig { builds: options.build_network.clone(), ..options.outside.config()? };
    let config = EngineConfig {
        standbys: options.standbys,
        spare_memory_mib: options.spare_memory,
        hibernate_after: (options.hibernate_after > 0).then(|| Duration::from_secs(options.hibernate_after)),
        takeover: true,
        network,
        ..config(common)?
    };
    let home = config.home.clone();
    announce::until_ended(&home).await;
    let engine = Engine::open(config).await?;
    let service = Service::open(engine.clone(), ServiceSettings::from_environment())?;
    let app = App::new(engine.clone(), service);
    let listener =
        TcpListener::bind(options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    println!("sandling listens on http://{address}");
    println!("a token is in {}", local_token_path(&home).display());
    let announced = Announcement::make(&home, address).context("the address cannot be kept in the home")?;
    if announced.is_none() {
        eprintln!("sandling: commands without SANDLING_API go on using the server that serves this home already");
    }
    let terminated = terminated()?;
    let idle = idle(app.clone(), options.idle_exit.map(Duration::from_secs));
    let ending = &announced;
    let shutdown = async move {
        tokio::select! {
            () = terminated => {}
            () = idle => {}
        }
        // Before the drain: what comes now would only be turned away.
        ending.iter().for_each(|announced| announced.close());
    };
    sandling_api::serve(listener, app, ServerLimits::default(), shutdown).await;
    // Sandboxes go on by themselves; the next start takes them over.
    engine.detach().await;
    drop(announced);
    Ok(ExitCode::SUCCESS)
}

/// The moment when nobody has needed the server for so long.
async fn idle(app: Arc<App>, after: Option<Duration>) {
    match after {
        Some(after) => app.idle(after).await,
        None => std::future::pending().await,
    }
}

/// Beyond this machine, only with a token that somebody chose to hand out.
fn check(listen: SocketAddr) -> anyhow::Result<()> {
    if !listen.ip().is_loopback() && std::env::var_os(TOKEN_VARIABLE).is_none_or(|token| token.is_empty()) {
        bail!("{listen} can be reached by others: set {TOKEN_VARIABLE} to a secret of your own first");
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
