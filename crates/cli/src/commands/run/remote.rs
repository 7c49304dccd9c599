//! Runs code on a server, in a sandbox that is always removed afterwards.

use anyhow::{Context, bail};
use sandling_api::IntoWire;
use sandling_wire::{CreateSandbox, ExecRequest, SessionStart};
use serde::Deserialize;
use serde_json::Value;

use super::code::{Code, reads_stdin};
use super::command::Done;
use super::local::TTL_SLACK;
use super::refused::refused;
use super::report::Report;
use crate::client::{Client, ClientError};
use crate::commands::decision::Decision;
use crate::commands::remove_sandbox;
use crate::follow::{AttachedCommand, Caught, End, OnTerminate, Signals, StdinSource};
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
    // Catch signals from the start, so that a sandbox that is being created is also removed.
    let mut signals = Signals::catch().context("cannot install signal handlers")?;
    let (sandbox, caught) = create(client, options, code, &mut signals).await?;
    let id = sandbox["id"]
        .as_str()
        .ok_or_else(|| ClientError::UnexpectedResponse("the new sandbox has no id".to_owned()))?
        .to_owned();
    let mut report = Report::default();
    report.sandbox = sandbox;
    let end = match caught {
        Some(caught) => Ok(End::Detached(caught)),
        None => execute(client, &id, options, code, &mut signals, &mut report).await,
    };
    if options.reach.network == Some(ModeChoice::Learn) {
        let path = format!("/v1/sandboxes/{id}/network");
        let learned: Result<Learned, _> = client.get(&path).await;
        report.learned = learned.ok().and_then(|network| network.learned);
    }
    // 1000 is the number of decisions that the server keeps.
    let decisions: Result<Decisions, _> = client.get(&format!("/v1/sandboxes/{id}/network/events?tail=1000")).await;
    report.refused = decisions.map_or_else(|_| Vec::new(), |kept| refused(kept.events));
    remove_sandbox(client, &id).await;
    match end? {
        End::Ended(ended) => report.ended(ended.exit_code, &ended.reason),
        End::GuestDied(why) => report.guest_died(&why, options),
        End::OutputClosed => bail!("stdout is closed"),
        End::Detached(Caught::Terminate) => bail!("terminated"),
        End::Detached(_) | End::Escaped => return Ok(Done::Interrupted(outcome::INTERRUPTED)),
    }
    Ok(Done::Ran(report))
}

/// Creates the sandbox. Also returns a signal that arrived meanwhile.
async fn create(
    client: &Client,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
) -> anyhow::Result<(Value, Option<Caught>)> {
    let request = CreateSandbox {
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
    let mut creating = std::pin::pin!(client.post::<Value>("/v1/sandboxes", &request));
    let mut caught = None;
    loop {
        tokio::select! {
            created = &mut creating => return Ok((created.map_err(NothingRan)?, caught)),
            signal = signals.end() => if caught.replace(signal).is_some() {
                bail!("interrupted; if the server created a sandbox, it ends when its TTL expires");
            },
        }
    }
}

/// The sandbox could not be created. Not a `Failure`, because the exit code must say that nothing was run.
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
    let stdin = if reads_stdin { StdinSource::Stdin } else { StdinSource::Nothing };
    let attached = AttachedCommand { client, sandbox, stdin, on_terminate: OnTerminate::Detach };
    Ok(attached.run(&start, signals, |stream, bytes| report.print(stream, bytes, options)).await?)
}
