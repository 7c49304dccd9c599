//! `sandling exec`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use sandling_wire::{ExecRequest, OnLimitName, SessionStart};
use serde_json::Value;

use crate::client::{Client, Started, read};
use crate::commands::run::{pass, tell_limit};
use crate::follow::{Caught, End, Feed, Followed, OnTerminate, Signals};
use crate::options::Exec;
use crate::terminal::{self, RawMode};
use crate::{outcome, show};

/// What the guest keeps of a terminal's output; older bytes scroll away.
const TERMINAL_KEPT: u64 = 1024 * 1024;

pub async fn exec(options: &Exec) -> anyhow::Result<ExitCode> {
    if options.tty && !terminal::is_there() {
        bail!("--tty needs a terminal, and stdin or stdout is none");
    }
    let client = Client::need()?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let request = ExecRequest {
        cmd: options.line.clone(),
        args: Some(options.command.clone()).filter(|command| !command.is_empty()),
        env: Some(options.env.iter().cloned().collect()),
        cwd: options.cwd.clone(),
        user: options.user.clone(),
        timeout_seconds: options.timeout.map(|seconds| seconds as f64),
        ..ExecRequest::default()
    };
    match (options.detach, options.tty) {
        (true, _) => detach(&client, &sandbox, request, options.json).await,
        (false, true) => in_terminal(&client, &sandbox, request).await,
        (false, false) => follow(&client, &sandbox, request, options).await,
    }
}

/// Starts a command that runs on by itself, however much it prints.
async fn detach(client: &Client, sandbox: &str, request: ExecRequest, json: bool) -> anyhow::Result<ExitCode> {
    let request = ExecRequest { detached: Some(true), on_limit: Some(OnLimitName::KeepTail), ..request };
    let started: Value = client.post(&format!("/v1/sandboxes/{sandbox}/exec"), &request).await?;
    if json {
        show::json(&started)?;
    } else {
        show::line(read::<Started>(started)?.id)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(client: &Client, sandbox: &str, request: ExecRequest, options: &Exec) -> anyhow::Result<ExitCode> {
    // It is passed on and not kept, so there is no need for a limit.
    let run = ExecRequest { output_limit: Some(u64::MAX), ..request };
    let start = SessionStart { run, terminal: None, closed_stdin: Some(options.no_stdin), scan: None };
    let feed = if options.no_stdin { Feed::Nothing } else { Feed::Stdin };
    let followed = Followed { client, sandbox, feed, on_terminate: OnTerminate::PassOn };
    let mut signals = Signals::catch().context("signals cannot be caught")?;
    let end = followed.run(&start, &mut signals, pass).await?;
    Ok(exit_code(end, options.timeout))
}

/// Gives a command our terminal until it ends.
pub async fn in_terminal(client: &Client, sandbox: &str, request: ExecRequest) -> anyhow::Result<ExitCode> {
    let kind = std::env::var("TERM").ok().filter(|kind| !kind.is_empty());
    let mut env = request.env.unwrap_or_default();
    env.entry("TERM".to_owned()).or_insert(kind.unwrap_or_else(|| "xterm-256color".to_owned()));
    let run = ExecRequest {
        env: Some(env),
        output_limit: Some(TERMINAL_KEPT),
        on_limit: Some(OnLimitName::KeepTail),
        ..request
    };
    let timeout = run.timeout_seconds.map(|seconds| seconds as u64);
    let start = SessionStart { run, terminal: Some(terminal::size()), closed_stdin: None, scan: None };
    let followed = Followed { client, sandbox, feed: Feed::Keys, on_terminate: OnTerminate::Leave };
    let mut signals = Signals::catch().context("signals cannot be caught")?;
    let raw = RawMode::enter().context("the terminal cannot be set up")?;
    let end = followed.run(&start, &mut signals, pass).await;
    drop(raw);
    Ok(exit_code(end?, timeout))
}

fn exit_code(end: End, timeout: Option<u64>) -> ExitCode {
    ExitCode::from(match end {
        End::Ended(ended) => {
            tell_limit(&ended.reason, timeout.unwrap_or_default(), None);
            outcome::exit_code(ended.exit_code, &ended.reason)
        }
        End::GuestDied(why) => {
            eprintln!("sandling: {why}");
            outcome::GUEST_DIED
        }
        End::OutputClosed => outcome::BROKEN_PIPE,
        End::Left(Caught::Terminate) => outcome::TERMINATED,
        End::Left(_) => outcome::INTERRUPTED,
        End::WalkedOut => {
            eprintln!("sandling: left");
            outcome::FAILED
        }
    })
}
