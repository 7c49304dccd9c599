//! Runs code on a server, in a sandbox that is always removed afterwards.

use anyhow::{Context, bail};
use sandling_api::IntoWire;
use sandling_wire::{CreateSandbox, ExecRequest, ModeName, SessionStart};
use serde_json::Value;

use super::code::{Code, reads_stdin};
use super::command::Done;
use super::local::TTL_SLACK;
use super::refused::refused;
use super::report::Report;
use crate::client::{Client, ClientError, field, read};
use crate::commands::decision::Decision;
use crate::commands::remove_sandbox;
use crate::follow::{AttachedCommand, End, OnTerminate, ReceivedSignal, Signals, StdinSource};
use crate::options::Run;
use crate::outcome;

pub async fn run(client: &Client, options: &Run, code: &Code) -> anyhow::Result<Done> {
    // Catch signals from the start, so that a sandbox that is being created is also removed.
    let mut signals = Signals::catch().context("cannot install signal handlers")?;
    let (sandbox, caught) = create(client, options, code, &mut signals).await?;
    let id = field(&sandbox, "id")?;
    let mut report = Report::default();
    report.sandbox = sandbox;
    let end = match caught {
        Some(caught) => Ok(End::Detached(caught)),
        None => execute(client, &id, options, code, &mut signals, &mut report).await,
    };
    let network = format!("/v1/sandboxes/{id}/network");
    if options.machine.network.network == Some(ModeName::Learn) {
        let mut state: Value = client.get(&network).await.unwrap_or_default();
        report.learned = read(state["learned"].take()).ok();
    }
    // 1000 is the number of decisions that the server keeps.
    let mut decisions: Value = client.get(&format!("{network}/events?tail=1000")).await.unwrap_or_default();
    report.refused = read(decisions["events"].take()).map_or_else(|_| Vec::new(), |kept: Vec<Decision>| refused(kept));
    remove_sandbox(client, &id).await;
    match end? {
        End::Ended(ended) => report.ended(ended.exit_code, &ended.reason),
        End::GuestDied(why) => report.guest_died(&why, options),
        End::OutputClosed => bail!("stdout is closed"),
        End::Detached(ReceivedSignal::Terminate) => bail!("terminated"),
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
) -> anyhow::Result<(Value, Option<ReceivedSignal>)> {
    let request = CreateSandbox {
        template: Some(code.template.clone()),
        ttl_seconds: Some(options.timeout + TTL_SLACK.as_secs()),
        ..options.machine.request()?
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
