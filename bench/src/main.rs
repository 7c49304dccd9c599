//! Measures sandboxes and their peers side by side. Each round runs every contender once, so that a busy moment of the
//! host affects all of them. Writes a JSON file and an SVG plot.

mod agent_day;
mod contenders;
mod endurance;
mod forks;
mod plot;
mod profile;
mod report;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use sandling_engine::{Engine, EngineConfig, Home, Standbys};

use report::Report;

#[derive(Debug, Parser)]
struct Options {
    /// The `sandling` binary, which starts the jails
    #[arg(long)]
    sandling: PathBuf,
    /// Where `base` and `code-interpreter` have been built
    #[arg(long)]
    templates: PathBuf,
    /// Measurements of each kind
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Creates one after another in the endurance part
    #[arg(long, default_value_t = 500)]
    creates: usize,
    /// Sandboxes alive at once in the endurance part
    #[arg(long, default_value_t = 60)]
    alive: usize,
    /// Only print where the time of a create and of the first commands goes
    #[arg(long)]
    profile: bool,
    /// Only measure forks, hibernation and checkpoints; written to `forks.json` and `forks.svg`
    #[arg(long)]
    forks: bool,
    /// Only run a coding agent's forty commands, in turns with the host and the peers; written to `agent_day.json` and
    /// `agent_day.svg`
    #[arg(long)]
    agent_day: bool,
    /// The template for --agent-day
    #[arg(long, default_value = "agent")]
    template: String,
    /// Where `sandboxes.json` and `sandboxes.svg` go
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.profile {
        return profile::print(&options).await;
    }
    std::fs::create_dir_all(&options.out)?;
    if options.agent_day {
        let day = agent_day::measure(&options).await?;
        std::fs::write(options.out.join("agent_day.json"), serde_json::to_vec_pretty(&day)?)?;
        std::fs::write(options.out.join("agent_day.svg"), day.svg())?;
        print!("{}", day.table());
        return Ok(());
    }
    let mut report = Report::new();
    let name = if options.forks {
        forks::measure(&options, &mut report).await?;
        "forks"
    } else {
        contenders::measure(&options, &mut report).await?;
        endurance::measure(&options, &mut report).await?;
        "sandboxes"
    };
    std::fs::write(options.out.join(format!("{name}.json")), serde_json::to_vec_pretty(&report)?)?;
    std::fs::write(options.out.join(format!("{name}.svg")), plot::svg(&report))?;
    print!("{}", report.table());
    println!("\nwritten to {}", options.out.display());
    Ok(())
}

/// An engine with its own home and this many standbys per template.
async fn engine(options: &Options, standbys: usize) -> anyhow::Result<(std::sync::Arc<Engine>, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    let templates = std::path::absolute(&options.templates)?;
    let home = Home::new(dir.path().to_owned()).with_templates(templates);
    let launcher = std::path::absolute(&options.sandling)?;
    let standbys = Standbys::Fixed(standbys);
    let config = EngineConfig { standbys, launcher, ..EngineConfig::new(home)? };
    Ok((Engine::open(config).await.context("the engine did not open")?, dir))
}
