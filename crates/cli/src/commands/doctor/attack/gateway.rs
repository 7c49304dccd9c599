//! Attacks on the gateway, from inside a guest that is root and has changed its own routes.
//!
//! `gateway.py` makes the attempts. The servers outside decide: an attempt succeeded if one of them saw its marker, or
//! if the guest got an answer.

use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::http::Call;
use super::internet::{ALLOWED, NAME, PRIVATE, STRANGER};
use super::server::{Sandbox, random_hex};
use super::trial::Trial;
use super::world::{Ready, World};

const SCRIPT: &str = include_str!("gateway.py");
const RUN_LIMIT: Duration = Duration::from_secs(100);
/// How long an open connection may outlive the policy that allowed it.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Line {
    tried: String,
    happened: String,
    marker: String,
}

/// Whether a sandbox can reach the allowed name first, which shows that the other results mean something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    Reachable,
    Closed,
}

pub async fn addresses(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "addresses", Control::Reachable, trial).await
}

pub async fn no_network(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let sandbox = ready.server.sandbox(&ready.attacker, json!({})).await?;
    let done = run(ready, &sandbox, "closed", Control::Closed, trial).await;
    sandbox.remove().await;
    done
}

pub async fn names(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "names", Control::Reachable, trial).await?;
    let left = ready.internet.was_asked("secret-");
    let happened = if left { "the query left" } else { "no query left" };
    trial.record(!left, "data in a name that the policy does not list", happened);
    Ok(())
}

pub async fn tls(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "tls", Control::Reachable, trial).await
}

pub async fn rebinding(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "rebinding", Control::Reachable, trial).await
}

/// With the mode `open`, only the ranges stand between a guest and the host's network.
pub async fn private(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let open = json!({ "network": { "mode": "open" } });
    let sandbox = ready.server.sandbox(&ready.attacker, open).await?;
    let done = run(ready, &sandbox, "private", Control::Reachable, trial).await;
    sandbox.remove().await;
    done
}

pub async fn datagrams(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "datagrams", Control::Reachable, trial).await
}

pub async fn other_protocols(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "other_protocols", Control::Reachable, trial).await?;
    run(ready, &ready.online, "ipv6", Control::Reachable, trial).await
}

pub async fn forged_packets(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    run(ready, &ready.online, "spoofed", Control::Reachable, trial).await?;
    run(ready, &ready.online, "malformed", Control::Reachable, trial).await
}

/// A stricter policy must also end the connections that the old one allowed.
pub async fn policy_change(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let network = json!({ "network": { "mode": "allow", "allow": ready.internet.allow_list() } });
    let sandbox = ready.server.sandbox(&ready.attacker, network).await?;
    let marker = format!("change-{}", random_hex()?);
    let talk = format!(
        "import time\ns = socket.create_connection((resolve(NAME)[0], PORT), timeout=5)\n\
         for number in range(200):\n    s.sendall(get(f'{{NAME}}:{{PORT}}', f'{marker}-{{number}}-end'))\n    \
         s.recv(4096)\n    time.sleep(0.2)\n"
    );
    let code = format!("{}\n{}", script(ready, &[], Control::Reachable)?, talk);
    upload(ready, &sandbox, "/root/talk.py", code).await?;
    sandbox.start("python3 /root/talk.py").await?;
    wait_for(ready, &format!("{marker}-3-end")).await?;
    let path = format!("/v1/sandboxes/{}/network", sandbox.id);
    ready.server.must(&sandbox.token, Method::PUT, &path, Some(json!({ "mode": "deny" }))).await?;
    tokio::time::sleep(CHANGE_LIMIT).await;
    let last = last_number(ready, &marker);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let still = last_number(ready, &marker);
    sandbox.remove().await;
    let happened = if last == still { "it ended" } else { "it continued" };
    trial.record(last == still, "an open connection after the policy was set to deny", happened);
    Ok(())
}

fn last_number(ready: &Ready, marker: &str) -> usize {
    (0..200).rev().find(|number| ready.internet.reached(&format!("{marker}-{number}-end")).is_some()).unwrap_or(0)
}

async fn wait_for(ready: &Ready, marker: &str) -> anyhow::Result<()> {
    for _ in 0..300 {
        if ready.internet.reached(marker).is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the guest's connection did not start within 30 s")
}

async fn upload(ready: &Ready, sandbox: &Sandbox, path: &str, content: String) -> anyhow::Result<()> {
    let call = Call::new(Method::PUT, format!("/v1/sandboxes/{}/fs?path={path}", sandbox.id));
    let call = call.bearer(&sandbox.token).header("content-type", "application/octet-stream");
    let answer = call.bytes(content.into_bytes()).send(ready.server.address).await?;
    ensure!((200..300).contains(&answer.status), "{path}: {}", answer.brief());
    Ok(())
}

/// The script with its head.
fn script(ready: &Ready, attacks: &[&str], control: Control) -> anyhow::Result<String> {
    let target = json!({
        "allowed": ALLOWED, "stranger": STRANGER, "private": PRIVATE, "name": NAME,
        "port": ready.internet.port(), "other_port": ready.internet.other_port(),
        "api_port": ready.server.address.port(), "run": &random_hex()?[..12],
        "control": u8::from(control == Control::Reachable), "attacks": attacks,
    });
    // JSON without booleans and nulls is Python.
    Ok(format!("target = {target}\n{SCRIPT}"))
}

async fn run(
    ready: &Ready,
    sandbox: &Sandbox,
    attack: &str,
    control: Control,
    trial: &mut Trial,
) -> anyhow::Result<()> {
    let ended = sandbox.python(&script(ready, &[attack], control)?, RUN_LIMIT).await?;
    // Datagrams and frames may still be on their way.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for line in ended.stdout.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| format!("the guest printed {line:?}"))?;
        let asked = line.marker.ends_with(NAME) && ready.internet.was_asked(&line.marker);
        let seen =
            ready.internet.reached(&line.marker).map(|seen| seen.split(' ').next().unwrap_or_default().to_owned());
        match (seen, asked) {
            (Some(server), _) => trial.record(false, line.tried, format!("the server at {server} saw it")),
            (None, true) => trial.record(false, line.tried, "the gateway passed it on"),
            // The gateway itself answers requests for other hosts, with an error.
            (None, false) => {
                let answered = line.happened.starts_with("answer") && !line.happened.contains("HTTP/1.1 4");
                trial.record(!answered, line.tried, line.happened);
            }
        }
    }
    ensure!(ended.exit_code == 0, "the guest's script ended with {}: {}", ended.exit_code, last_lines(&ended.stderr));
    Ok(())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}
