//! `sandling exec`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use sandling_wire::{ExecRequest, OnLimitName, SessionStart};
use serde_json::Value;

use crate::client::Client;
use crate::commands::run::{print_limit, print_output};
use crate::follow::{AttachedCommand, End, OnTerminate, ReceivedSignal, Signals, StdinSource};
use crate::options::Exec;
use crate::terminal::{self, RawMode};
use crate::{outcome, show};

/// Bytes of terminal output that the guest keeps; older bytes are dropped.
const TERMINAL_BUFFER: u64 = 1024 * 1024;

pub async fn exec(options: &Exec) -> anyhow::Result<ExitCode> {
    if options.tty && !terminal::is_interactive() {
        bail!("--tty needs a terminal, but stdin or stdout is not one; leave out --tty");
    }
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let request = ExecRequest {
        cmd: options.line.clone(),
        args: Some(options.command.clone()).filter(|command| !command.is_empty()),
        env: Some(options.env.iter().cloned().collect()),
        cwd: options.cwd.clone(),
        user: options.user.clone(),
        timeout_seconds: options.timeout.map(|seconds| seconds as f64),
        cpu_seconds: options.limits.cpu_time.map(|seconds| seconds as f64),
        disk_limit_mb: options.limits.disk_limit,
        ..ExecRequest::default()
    };
    match (options.detach, options.tty) {
        (true, _) => detach(&client, &sandbox, request, options.json).await,
        (false, true) => in_terminal(&client, &sandbox, request).await,
        (false, false) => follow(&client, &sandbox, request, options).await,
    }
}

/// Starts a command in the background. Its output has no limit; the guest keeps the end.
async fn detach(client: &Client, sandbox: &str, request: ExecRequest, json: bool) -> anyhow::Result<ExitCode> {
    let request = ExecRequest { detached: Some(true), on_limit: Some(OnLimitName::KeepTail), ..request };
    let started: Value = client.post(&format!("/v1/sandboxes/{sandbox}/exec"), &request).await?;
    show::field(&started, "id", json)?;
    Ok(ExitCode::SUCCESS)
}

async fn follow(client: &Client, sandbox: &str, request: ExecRequest, options: &Exec) -> anyhow::Result<ExitCode> {
    // The output is streamed and not stored, so it needs no limit.
    let run = ExecRequest { output_limit: Some(u64::MAX), ..request };
    let start = SessionStart { run, terminal: None, closed_stdin: Some(options.no_stdin), scan: None };
    let stdin = if options.no_stdin { StdinSource::Nothing } else { StdinSource::Stdin };
    let attached = AttachedCommand { client, sandbox, stdin, on_terminate: OnTerminate::Forward };
    let mut signals = Signals::catch().context("cannot install signal handlers")?;
    let end = attached.run(&start, &mut signals, print_output).await?;
    Ok(exit_code(end, options.timeout))
}

/// Connects a command to our terminal until it ends.
pub async fn in_terminal(client: &Client, sandbox: &str, request: ExecRequest) -> anyhow::Result<ExitCode> {
    let kind = std::env::var("TERM").ok().filter(|kind| !kind.is_empty());
    let mut env = request.env.unwrap_or_default();
    env.entry("TERM".to_owned()).or_insert(kind.unwrap_or_else(|| "xterm-256color".to_owned()));
    let run = ExecRequest {
        env: Some(env),
        output_limit: Some(TERMINAL_BUFFER),
        on_limit: Some(OnLimitName::KeepTail),
        ..request
    };
    let timeout = run.timeout_seconds.map(|seconds| seconds as u64);
    let start = SessionStart { run, terminal: Some(terminal::size()), closed_stdin: None, scan: None };
    let attached = AttachedCommand { client, sandbox, stdin: StdinSource::Keys, on_terminate: OnTerminate::Detach };
    let mut signals = Signals::catch().context("cannot install signal handlers")?;
    let raw = RawMode::enter().context("cannot switch the terminal to raw mode")?;
    let end = attached.run(&start, &mut signals, print_output).await;
    drop(raw);
    Ok(exit_code(end?, timeout))
}

fn exit_code(end: End, timeout: Option<u64>) -> ExitCode {
    ExitCode::from(match end {
        End::Ended(ended) => {
            print_limit(&ended.reason, timeout.unwrap_or_default(), None);
            outcome::exit_code(ended.exit_code, &ended.reason)
        }
        End::GuestDied(why) => {
            eprintln!("sandling: {why}");
            outcome::GUEST_DIED
        }
        End::OutputClosed => outcome::BROKEN_PIPE,
        End::Detached(ReceivedSignal::Terminate) => outcome::TERMINATED,
        End::Detached(_) => outcome::INTERRUPTED,
        End::Escaped => {
            eprintln!("sandling: disconnected; the command may still be running");
            outcome::FAILED
        }
    })
}
