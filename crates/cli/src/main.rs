//! `sandling`: a disposable computer for every AI agent.

mod commands;
mod follow;
mod options;
mod outcome;
mod save;
mod show;
mod signals;
mod telemetry;
mod terminal;
mod trust;

use std::process::ExitCode;

use clap::Parser;
use options::{Command, Options};
use sandling_api::Telemetry;
use sandling_client as client;
use sandling_fleet::own_etcd;

fn main() -> ExitCode {
    // This must come first, before any thread starts: Sandling runs its own binary to enter a machine's jail, to
    // unpack images, to build templates, to run etcd, and to attack the jail from inside.
    match std::env::args_os().nth(1) {
        Some(argument) if argument == sandling_vmm::jail::ARGUMENT => return sandling_vmm::jail::main(),
        Some(argument) if argument == sandling_oci::UNPACK_ARGUMENT => return sandling_oci::unpack_main(),
        Some(argument) if argument == sandling_image::jail::ARGUMENT => return sandling_image::jail::main(),
        Some(argument) if argument == own_etcd::ARGUMENT => return own_etcd::main(),
        Some(argument) if argument == commands::doctor::probe::ARGUMENT => return commands::doctor::probe::main(),
        _ => {}
    }
    let options = Options::parse_from(options::with_docker_flags(std::env::args_os()));
    if let Some(ca) = &options.common.ca
        && let Err(error) = trust::add(ca)
    {
        return outcome::report_error(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return outcome::report_error(&anyhow::Error::from(error).context("cannot start the async runtime"));
        }
    };
    let result = runtime.block_on(async { dispatch(&options, telemetry::start(&options)?).await });
    // A thread may still block on reading stdin; do not wait for it.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| outcome::report_error(&error))
}

async fn dispatch(Options { common, command }: &Options, telemetry: Option<Telemetry>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(options) => return commands::run::run(common, options).await,
        Command::Exec(options) => return commands::exec::exec(options).await,
        Command::Shell(options) => return commands::shell::shell(options).await,
        Command::Agent(options) => return commands::agent::agent(options).await,
        Command::Doctor(options) => return commands::doctor::doctor(common, options).await,
        Command::Pause(options) => return commands::lifecycle::change_state(options, "pause").await,
        Command::Resume(options) => return commands::lifecycle::change_state(options, "resume").await,
        Command::Hibernate(options) => return commands::lifecycle::hibernate(options).await,
        Command::Wake(options) => return commands::lifecycle::change_state(options, "wake").await,
        Command::Rm(options) => return commands::rm::rm(options).await,
        Command::Create(options) => commands::create::create(common, options).await?,
        Command::Ls(options) => commands::ls::ls(options).await?,
        Command::Top(options) => return commands::top::top(options).await,
        Command::Stats(options) => commands::stats::stats(options).await?,
        Command::Execs(options) => commands::execs::execs(options).await?,
        Command::Workspace(command) => commands::workspace::workspace(command).await?,
        Command::Cp(options) => commands::cp::cp(options).await?,
        Command::Logs(options) => commands::logs::logs(options).await?,
        Command::Events(options) => commands::events::events(options).await?,
        Command::Network(options) => commands::network::network(options).await?,
        Command::Secret(command) => commands::secret::secret(common, command).await?,
        Command::Fleet(command) => commands::fleet::fleet(common, command).await?,
        Command::Webhook(command) => commands::webhook::webhook(command).await?,
        Command::Registry(command) => commands::registry::registry(common, command).await?,
        Command::Ports(options) => commands::ports::ports(options).await?,
        Command::Fork(options) => commands::fork::fork(options).await?,
        Command::Timeline(options) => commands::timeline::timeline(options).await?,
        Command::Checkpoint(command) => commands::timeline::checkpoint(command).await?,
        Command::Rewind(options) => commands::timeline::rewind(options).await?,
        Command::Diff(options) => commands::diff::diff(options).await?,
        Command::Snapshot(command) => commands::snapshot::snapshot(command).await?,
        Command::Volume(command) => commands::volume::volume(command).await?,
        Command::Token(options) => commands::token::token(options).await?,
        Command::Quota(options) => commands::quota::quota(options).await?,
        Command::Audit(options) => commands::audit::audit(options).await?,
        Command::Template(command) => commands::template::template(common, command).await?,
        Command::Dashboard { print } => commands::dashboard::dashboard(*print).await?,
        Command::Mcp(options) => commands::mcp::mcp(options).await?,
        Command::Serve(options) => commands::serve::serve(common, options, telemetry).await?,
        Command::Completions { shell } => commands::completions::completions(*shell)?,
    }
    Ok(ExitCode::SUCCESS)
}
