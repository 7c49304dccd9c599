//! Runs code on a server, in a sandbox that is always removed afterwards.

use anyhow::{Context, bail};
use sandling_api::IntoWire;
use sandling_engine::with_causes;
use sandling_wire::{CreateSandbox, ExecRequest, ModeName, SessionStart};
use serde_json::Value;

use super::code::{Code, reads_stdin};
use super::command::Done;
use super::guest::Guest;
use super::launch::Launch;
use super::refused::refused;
use super::report::Report;
use crate::client::{Client, ClientError, field, read};
use crate::commands::decision::Decision;
use crate::commands::{remove_sandbox, waiting};
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
        None => prepared_and_run(client, &id, options, code, &mut signals, &mut report).await,
    };
    let brought_back = match &end {
        Ok(End::Ended(_)) => Guest::Remote { client, id: &id }.bring_back(options, code.files.as_ref()).await,
        _ => Ok(()),
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
    let end = end?;
    brought_back?;
    match end {
        End::Ended(ended) => report.ended(ended.exit_code, &ended.reason),
        End::GuestDied(why) => report.guest_died(&why, options),
        End::OutputClosed => bail!("stdout is closed"),
        End::Detached(ReceivedSignal::Terminate) => bail!("terminated"),
        End::Detached(_) | End::Escaped => return Ok(Done::Interrupted(outcome::INTERRUPTED)),
    }
    Ok(Done::Ran(Box::new(report)))
}

/// Creates the sandbox. Also returns a signal that arrived meanwhile.
async fn create(
    client: &Client,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
) -> anyhow::Result<(Value, Option<ReceivedSignal>)> {
    let request = CreateSandbox {
        template: code.image.is_none().then(|| code.template.clone()),
        image: code.image.clone(),
        ttl_seconds: Some(options.ttl_seconds()),
        ..options.create_request()?
    };
    let creating = client.post::<Value>("/v1/sandboxes", &request);
    let mut creating = std::pin::pin!(waiting::with_progress(client, &request, creating));
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
#[error("{}", with_causes(.0))]
pub struct NothingRan(pub ClientError);

/// Copies the files, and then runs the code. A signal that arrives meanwhile ends both.
async fn prepared_and_run(
    client: &Client,
    id: &str,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
    report: &mut Report,
) -> anyhow::Result<End> {
    tokio::select! {
        prepared = Guest::Remote { client, id }.prepare(options, code.files.as_ref()) => prepared?,
        caught = signals.end() => return Ok(End::Detached(caught)),
    }
    execute(client, id, options, code, signals, report).await
}

async fn execute(
    client: &Client,
    sandbox: &str,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
    report: &mut Report,
) -> anyhow::Result<End> {
    let reads_stdin = reads_stdin(options);
    let program = match &code.launch {
        Launch::Code { language, text } => ExecRequest {
            code: Some(text.clone()),
            language: Some((*language).into_wire()),
            args: Some(options.args.clone()).filter(|args| !args.is_empty()),
            ..ExecRequest::default()
        },
        Launch::Program(args) => ExecRequest { args: Some(args.clone()), ..ExecRequest::default() },
    };
    let run = ExecRequest {
        cwd: code.cwd(),
        env: Some(options.env.iter().cloned().collect()),
        timeout_seconds: Some(options.timeout as f64),
        output_limit: Some(options.output_limit),
        cpu_seconds: options.limits.cpu_time.map(|seconds| seconds as f64),
        disk_limit_mb: options.limits.disk_limit,
        ..program
    };
    let start = SessionStart { run, terminal: None, closed_stdin: Some(!reads_stdin), scan: Some(options.scan) };
    let stdin = if reads_stdin { StdinSource::Stdin } else { StdinSource::Nothing };
    let attached = AttachedCommand { client, sandbox, stdin, on_terminate: OnTerminate::Detach };
    Ok(attached.run(&start, signals, |stream, bytes| report.print(stream, bytes, options)).await?)
}
