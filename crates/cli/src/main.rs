//! `sandling`: a disposable computer for every AI agent.

mod commands;
mod options;
mod outcome;
mod show;

use std::process::ExitCode;

use clap::Parser;
use options::{Command, Options};

fn main() -> ExitCode {
    // Before anything else, and before any thread: this process may be asked to become a machine's jail.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sandling_vmm::jail::ARGUMENT) {
        return sandling_vmm::jail::main();
    }
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("SANDLING_LOG").unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return outcome::failed(&anyhow::Error::from(error).context("the runtime did not start")),
    };
    let result = runtime.block_on(async {
        match options.command {
            Command::Run(ref run) => commands::run::run(&options.common, run).await,
            Command::Serve(ref serve) => commands::serve::serve(&options.common, serve).await,
            Command::Doctor(ref doctor) => commands::doctor::doctor(&options.common, doctor).await,
            Command::Template(ref template) => commands::template::template(&options.common, template).await,
            Command::Completions { shell } => commands::completions::completions(shell),
        }
    });
    // Reading our own stdin may still block a thread; nobody waits for it.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| outcome::failed(&error))
}
