//! `sandling`: a disposable computer for every AI agent.

mod commands;
mod each;
mod follow;
mod options;
mod outcome;
mod show;
mod signals;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use options::{Command, Options};
use sandling_client as client;

fn main() -> ExitCode {
    // This must come first, before any thread starts: Sandling runs its own binary to enter a machine's jail.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sandling_vmm::jail::ARGUMENT) {
        return sandling_vmm::jail::main();
    }
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("SANDLING_LOG").unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .with_ansi(show::has_colours(&std::io::stderr()))
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return outcome::report_error(&anyhow::Error::from(error).context("cannot start the async runtime"));
        }
    };
    let result = runtime.block_on(dispatch(&options));
    // A thread may still block on reading stdin; do not wait for it.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| outcome::report_error(&error))
}

async fn dispatch(Options { common, command }: &Options) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(options) => commands::run::run(common, options).await,
        Command::Create(options) => commands::create::create(options).await,
        Command::Ls(options) => commands::ls::ls(options).await,
        Command::Exec(options) => commands::exec::exec(options).await,
        Command::Shell(options) => commands::shell::shell(options).await,
        Command::Cp(options) => commands::cp::cp(options).await,
        Command::Logs(options) => commands::logs::logs(options).await,
        Command::Events(options) => commands::events::events(options).await,
        Command::Network(options) => commands::network::network(options).await,
        Command::Secret(options) => commands::secret::secret(common, options).await,
        Command::Ports(options) => commands::ports::ports(options).await,
        Command::Pause(options) => commands::pause::pause(options).await,
        Command::Hibernate(options) => commands::hibernate::hibernate(options).await,
        Command::Wake(options) => commands::wake::wake(options).await,
        Command::Fork(options) => commands::fork::fork(options).await,
        Command::Timeline(options) => commands::timeline::timeline(options).await,
        Command::Checkpoint(options) => commands::timeline::checkpoint(options).await,
        Command::Rewind(options) => commands::timeline::rewind(options).await,
        Command::Diff(options) => commands::diff::diff(options).await,
        Command::Snapshot(options) => commands::snapshot::snapshot(options).await,
        Command::Volume(options) => commands::volume::volume(options).await,
        Command::Resume(options) => commands::resume::resume(options).await,
        Command::Rm(options) => commands::rm::rm(options).await,
        Command::Token(options) => commands::token::token(options).await,
        Command::Quota(options) => commands::quota::quota(options).await,
        Command::Audit(options) => commands::audit::audit(options).await,
        Command::Template(options) => commands::template::template(common, options).await,
        Command::Agent(options) => commands::agent::agent(options).await,
        Command::Mcp(options) => commands::mcp::mcp(options).await,
        Command::Serve(options) => commands::serve::serve(common, options).await,
        Command::Doctor(options) => commands::doctor::doctor(common, options).await,
        Command::Completions { shell } => commands::completions::completions(*shell),
    }
}
