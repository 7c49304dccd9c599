//! Where the time of a sandbox goes: CPU time of its machine in each phase, next to the wall clock.
//!
//! On a shared host the wall clock depends on the neighbors. CPU time can be compared between runs.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use sandling_engine::{EndReason, Engine, RunSpec};
use sandling_protocol::{Language, Program};

use crate::contenders::spec;
use crate::{Options, engine};

/// How often each operation runs in one sandbox. The first time is that of a fresh sandbox.
const REPEATS: usize = 6;

pub async fn print(options: &Options) -> anyhow::Result<()> {
    for standbys in [1, 0] {
        let (engine, _home) = engine(options, standbys).await?;
        println!("{}", if standbys == 0 { "by a restore" } else { "from a standby" });
        for template in ["base", "code-interpreter"] {
            for round in 0..options.rounds.min(5) {
                engine.machines().warm_up(template).await?;
                println!("  {template}, round {round}");
                one(&engine, template).await?;
            }
        }
        engine.close().await;
    }
    Ok(())
}

async fn one(engine: &Arc<Engine>, template: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let sandbox = engine.create(spec(template)).await?;
    println!("    {:<28} {:>8.1} ms", "create", begun.elapsed().as_secs_f64() * 1e3);
    let pid = sandbox.usage().await?.pid;
    let mut line = format!("    {:<28}", "a question and its answer");
    for _ in 0..REPEATS {
        let (begun, used) = (Instant::now(), on_processor(pid)?);
        sandbox.list_execs().await?;
        line += &cost(begun, pid, used)?;
    }
    println!("{line} ms wall (cpu)");
    for (name, run) in [
        ("print(1+1)", RunSpec::code(Language::Python, "print(1+1)")),
        ("/bin/true", RunSpec::new(Program::Argv(vec!["/bin/true".to_owned()]))),
    ] {
        let mut line = format!("    {name:<28}");
        for _ in 0..REPEATS {
            let (begun, used) = (Instant::now(), on_processor(pid)?);
            sandbox.run(run.clone())?.collect().await?;
            line += &cost(begun, pid, used)?;
        }
        println!("{line} ms wall (cpu)");
    }
    sandbox.end(EndReason::Requested).await?;
    Ok(())
}

fn cost(begun: Instant, pid: i32, used: Duration) -> anyhow::Result<String> {
    let (wall, cpu) = (begun.elapsed(), on_processor(pid)?.saturating_sub(used));
    Ok(format!(" {:>8.1} ({:.1})", wall.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3))
}

/// CPU time of all threads of a process.
fn on_processor(pid: i32) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = text.split_whitespace().next().unwrap_or("0").parse().context("schedstat is not a number")?;
        sum += Duration::from_nanos(nanos);
    }
    Ok(sum)
}
