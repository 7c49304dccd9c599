//! Measures sandboxes and their peers side by side. Each round runs every contender once, so that a busy moment of the
//! host affects all of them. Writes a JSON file and an SVG plot.

mod agent_day;
mod contenders;
mod endurance;
#[path = "load/footprint.rs"]
mod footprint;
mod forks;
mod growth;
mod host_side;
mod plot;
mod profile;
mod report;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use sandling_engine::{Engine, EngineConfig, Home, Standbys};
use tempfile::TempDir;

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
    /// Only measure the steps of a cold restore until the guest's first instruction; written to `host_side.json`
    #[arg(long)]
    host_side: bool,
    /// Only the endurance part; written to `density.json` and `density.svg`
    #[arg(long)]
    density: bool,
    /// Only measure how cost grows with sizes and numbers; written to `growth-*.json` and
    /// `growth-*.svg`
    #[arg(long)]
    growth: bool,
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
    if options.growth {
        return growth::measure(&options).await;
    }
    let mut report = Report::new();
    let name = if options.forks {
        forks::measure(&options, &mut report).await?;
        "forks"
    } else if options.host_side {
        host_side::measure(&options, &mut report).await?;
        "host_side"
    } else if options.density {
        endurance::measure(&options, &mut report).await?;
        "density"
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
async fn engine(options: &Options, standbys: usize) -> anyhow::Result<(Arc<Engine>, TempDir)> {
    let (config, dir) = config(options)?;
    let config = EngineConfig { standbys: Standbys::Fixed(standbys), ..config };
    Ok((Engine::open(config).await.context("the engine did not open")?, dir))
}

/// The configuration of an engine with its own home.
fn config(options: &Options) -> anyhow::Result<(EngineConfig, TempDir)> {
    let dir = tempfile::tempdir()?;
    let templates = std::path::absolute(&options.templates)?;
    let home = Home::new(dir.path().to_owned()).with_templates(templates);
    let launcher = std::path::absolute(&options.sandling)?;
    Ok((EngineConfig { launcher, ..EngineConfig::new(home)? }, dir))
}
