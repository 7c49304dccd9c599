//! A run on a server: a sandbox is made for it there, and removed whatever comes of it.

use anyhow::{Context, bail};
use sandling_api::IntoWire;
use sandling_wire::{CreateSandbox, ExecRequest, SessionStart};
use serde::Deserialize;
use serde_json::Value;

use super::code::{Code, reads_stdin};
use super::command::Done;
use super::here::TTL_SLACK;
use super::refused::refused;
use super::report::Report;
use crate::client::{Client, ClientError};
use crate::commands::decision::Decision;
use crate::commands::remove_sandbox;
use crate::follow::{Caught, End, Feed, Followed, OnTerminate, Signals};
use crate::options::{ModeChoice, Run};
use crate::outcome;

#[derive(Deserialize)]
struct Decisions {
    events: Vec<Decision>,
}

#[derive(Deserialize)]
struct Learned {
    learned: Option<Vec<String>>,
}

pub async fn run(client: &Client, options: &Run, code: &Code) -> anyhow::Result<Done> {
    // From the beginning: interrupted while the sandbox is made, we wait for it and remove it.
    let mut signals = Signals::catch().context("signals cannot be caught")?;
    let (sandbox, caught) = create(client, options, code, &mut signals).await?;
    let id = sandbox["id"].as_str().ok_or_else(|| ClientError::Strange("a sandbox has no id".to_owned()))?.to_owned();
    let mut report = Report::default();
    report.sandbox = sandbox;
    let end = match caught {
        Some(caught) => Ok(End::Left(caught)),
        None => execute(client, &id, options, code, &mut signals, &mut report).await,
    };
    if options.reach.network == Some(ModeChoice::Learn) {
        let path = format!("/v1/sandboxes/{id}/network");
        let learned: Result<Learned, _> = client.get(&path).await;
        report.learned = learned.ok().and_then(|network| network.learned);
    }
    // All that the server keeps.
    let decisions: Result<Decisions, _> = client.get(&format!("/v1/sandboxes/{id}/network/events?tail=1000")).await;
    report.refused = decisions.map_or_else(|_| Vec::new(), |kept| refused(kept.events));
    remove_sandbox(client, &id).await;
    match end? {
        End::Ended(ended) => report.ended(ended.exit_code, &ended.reason),
        End::GuestDied(why) => report.guest_died(&why, options),
        End::OutputClosed => bail!("stdout is closed"),
        End::Left(Caught::Terminate) => bail!("terminated"),
        End::Left(_) | End::WalkedOut => return Ok(Done::Left(outcome::INTERRUPTED)),
    }
    Ok(Done::Ran(report))
}

/// Makes the sandbox; also tells whether somebody wanted us to end meanwhile.
async fn create(
    client: &Client,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
) -> anyhow::Result<(Value, Option<Caught>)> {
    let wish = CreateSandbox {
        template: Some(code.template.clone()),
        ttl_seconds: Some(options.timeout + TTL_SLACK.as_secs()),
        cpu: options.sizes.cpus,
        memory_mb: options.sizes.memory,
        disk_mb: options.sizes.disk,
        pids: options.sizes.pids,
        network: Some(options.reach.request()?),
        volumes: Some(options.volumes.clone()).filter(|volumes| !volumes.is_empty()),
        ..CreateSandbox::default()
    };
    let mut creating = std::pin::pin!(client.post::<Value>("/v1/sandboxes", &wish));
    let mut caught = None;
    loop {
        tokio::select! {
            created = &mut creating => return Ok((created.map_err(NothingRan)?, caught)),
            signal = signals.end() => if caught.replace(signal).is_some() {
                bail!("left; if a sandbox was made, it ends by itself when its time is over");
            },
        }
    }
}

/// The sandbox could not be made. The exit code says that nothing was run, whoever's fault it was.
#[derive(Debug, thiserror::Error)]
#[error("{}", outcome::chain(.0))]
pub struct NothingRan(pub ClientError);

async fn execute(
    client: &Client,
    sandbox: &str,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
    report: &mut Report,
) -> anyhow::Result<End> {
    let reads_stdin = reads_stdin(options);
    let run = ExecRequest {
        code: Some(code.text.clone()),
        language: Some(code.language.into_wire()),
        args: Some(options.args.clone()).filter(|args| !args.is_empty()),
        env: Some(options.env.iter().cloned().collect()),
        timeout_seconds: Some(options.timeout as f64),
        output_limit: Some(options.output_limit),
        ..ExecRequest::default()
    };
    let start = SessionStart { run, terminal: None, closed_stdin: Some(!reads_stdin), scan: Some(options.scan) };
    let feed = if reads_stdin { Feed::Stdin } else { Feed::Nothing };
    let followed = Followed { client, sandbox, feed, on_terminate: OnTerminate::Leave };
    Ok(followed.run(&start, signals, |stream, bytes| report.print(stream, bytes, options)).await?)
}
