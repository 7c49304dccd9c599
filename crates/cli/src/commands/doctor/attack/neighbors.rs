//! Attacks on the neighbors, at a small scale: what one client or guest uses up, and what others notice.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::Sandbox;
use super::trial::Trial;
use super::world::{Ready, World};

/// More connections than the server gives to clients without a token.
const CONNECTIONS: usize = 2400;
/// The server's share for them, and some that it has not closed yet.
const MOST_OPEN: usize = 2200;
/// A client with a token is answered in milliseconds; on a busy host in a few seconds.
const PROMPTLY: Duration = Duration::from_secs(8);
/// How long a part of a request's head may stay.
const HEAD_LIMIT: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(30);

/// Idle connections without a token must not keep out clients that have one.
pub async fn connections(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let allowed = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS as u64 + 500;
    if allowed.maximum.is_some_and(|most| most < wanted) {
        trial.skip("idle connections", format!("this user may open fewer than {wanted} files"));
        return Ok(());
    }
    if allowed.current.is_some_and(|now| now < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: allowed.maximum })?;
    }
    let mut held = Vec::new();
    let mut slowest = Duration::ZERO;
    for number in 0..CONNECTIONS {
        if let Ok(mut stream) = TcpStream::connect(ready.server.address).await {
            if number % 2 == 1 {
                let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").await;
            }
            held.push(stream);
        }
        if number % 400 == 399 {
            slowest = slowest.max(ask(ready).await?);
        }
    }
    slowest = slowest.max(ask(ready).await?);
    let what = format!("{CONNECTIONS} idle connections without a token, and a client with a token");
    trial.record(slowest < PROMPTLY, what, format!("it waited {} ms at most", slowest.as_millis()));
    let open = held.iter().filter(|stream| is_open(stream)).count();
    let what = "idle connections that the server keeps open at once";
    trial.record(open <= MOST_OPEN, what, format!("{open} of {CONNECTIONS}"));
    Ok(())
}

fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0; 1];
    matches!(stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

async fn ask(ready: &Ready) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    ready.server.must(&ready.neighbor.token, Method::GET, "/v1/me", None).await?;
    Ok(begun.elapsed())
}

/// A client that never finishes the head of its request.
pub async fn slow_heads(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    for begun in ["", "GET /v1/me HTTP/1.1\r\nHost: loc"] {
        let mut stream = TcpStream::connect(ready.server.address).await?;
        stream.write_all(begun.as_bytes()).await?;
        let started = Instant::now();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(HEAD_LIMIT, stream.read_to_end(&mut rest)).await.is_ok();
        let happened = match closed {
            true => format!("closed after {} s", started.elapsed().as_secs()),
            false => format!("still open after {} s", HEAD_LIMIT.as_secs()),
        };
        let what = if begun.is_empty() { "a connection without a request" } else { "half a head of a request" };
        trial.record(closed, what, happened);
    }
    Ok(())
}

/// Guests that use all they can get.
pub async fn guests(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let before = neighbor_waits(&ready.witness).await?;
    trial.record(true, "the neighbor's command before", format!("{} ms", before.as_millis()));
    // The limit grows with the host's load: what matters is that the neighbor is not starved.
    let most = PROMPTLY.max(before * 20);
    for (what, line) in [
        ("a fork bomb", "bomb() { bomb | bomb & }; bomb; sleep 6"),
        ("processes that compute on every CPU", "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; sleep 6"),
        ("endless output", "yes"),
    ] {
        let victim = ready.server.sandbox(&ready.attacker, json!({})).await?;
        let attacking = {
            let (victim, line) = (victim.clone(), line.to_owned());
            tokio::spawn(async move { victim.shell(&line, Duration::from_secs(7)).await })
        };
        tokio::time::sleep(Duration::from_secs(2)).await;
        let waited = neighbor_waits(&ready.witness).await;
        attacking.abort();
        victim.remove().await;
        let waited = waited?;
        let happened = format!("the neighbor's command took {} ms", waited.as_millis());
        trial.record(waited < most, what, happened);
    }
    memory(ready, trial).await
}

/// A guest's memory is its own: it runs out of it, and the host does not.
async fn memory(ready: &Ready, trial: &mut Trial) -> anyhow::Result<()> {
    let victim = ready.server.sandbox(&ready.attacker, json!({})).await?;
    let (qemu, _) = ready.server.processes(&victim)?;
    let code = "x = []\nwhile True:\n    x.append(bytearray(8 << 20))";
    let ended = victim.python(code, Duration::from_secs(60)).await;
    let resident = super::live::resident_mib(qemu);
    let what = "a process that takes all memory";
    match (&ended, resident) {
        (Ok(ended), Some(mib)) => {
            let happened = format!("ended: {}; QEMU uses {mib} MiB", ended.reason);
            trial.record(ended.reason == "out_of_memory" || ended.stderr.contains("MemoryError"), what, happened);
        }
        _ => trial.record(true, what, "that machine ended"),
    }
    let waited = neighbor_waits(&ready.witness).await?;
    trial.record(waited < PROMPTLY, "the neighbor's command afterwards", format!("{} ms", waited.as_millis()));
    victim.remove().await;
    Ok(())
}

async fn neighbor_waits(witness: &Sandbox) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let ended = witness.shell("echo alive", LIMIT).await?;
    ensure!(ended.stdout == "alive\n", "the neighbor's command ended with {}", ended.exit_code);
    Ok(begun.elapsed())
}
