//! A server under load: many concurrent clients create a sandbox, run a command, read a file and delete the sandbox.
//! None may fail, except for refusals that say when to retry, and nothing may be left behind. Afterwards it measures a
//! command over HTTP and without HTTP.

mod client;
mod clients;
mod footprint;
mod overhead;
#[path = "../report.rs"]
mod report;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser;

use report::Report;
use server::Server;

#[derive(Debug, Parser)]
struct Options {
    /// The `sandling` binary
    #[arg(long)]
    sandling: PathBuf,
    /// Where `base` has been built
    #[arg(long)]
    templates: PathBuf,
    /// Clients at once
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// How long they run, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Commands over HTTP, and as many without
    #[arg(long, default_value_t = 1000)]
    rounds: usize,
    /// Where `load.json` goes
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut report = Report::new();
    let leaks = load(&options, &mut report).await?;
    overhead::measure(&options, &mut report).await?;
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(options.out.join("load.json"), serde_json::to_vec_pretty(&report)?)?;
    print!("{}", report.table());
    println!("\nwritten to {}", options.out.join("load.json").display());
    ensure!(leaks.is_empty(), "more was left than there was before: {}", leaks.join(", "));
    Ok(())
}

/// A description of what was left behind.
async fn load(options: &Options, report: &mut Report) -> anyhow::Result<Vec<String>> {
    let server = Server::start(options).await?;
    let seconds = Duration::from_secs(options.seconds);
    // Pools and caches reach their size first. Growth after that is a leak.
    let warm_up = seconds.div_f64(10.0).max(Duration::from_secs(10));
    let warm = clients::work(&server, options.clients, warm_up).await?;
    ensure!(warm.failures.is_empty(), "{} requests failed at first: {:#?}", warm.failures.len(), warm.first_failures());
    let before = server.settled_footprint().await?;
    let tally = clients::work(&server, options.clients, seconds).await?;
    let after = server.settled_footprint().await?;
    tally.report(report);
    before.report("before", report);
    after.report("after", report);
    server.stop().await?;
    ensure!(tally.failures.is_empty(), "{} requests failed: {:#?}", tally.failures.len(), tally.first_failures());
    Ok(after.grown_from(&before))
}
