//! Sandboxes that are alive together: their memory, and how long one more takes.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use sandling_engine::{EndReason, Engine, Sandbox};

use super::series::Growth;
use crate::Options;
use crate::contenders::{progress, spec};
use crate::forks::answers;

/// Where the memory is measured.
const NUMBERS: [usize; 8] = [1, 10, 25, 50, 100, 200, 300, 400];

pub async fn measure(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<Growth> {
    let lines = ["memory of each (Pss), MiB", "memory the host lacks, MiB / number", "one more → first answer, ms"];
    let axes = ["sandboxes alive", "MiB, or milliseconds"];
    let mut growth = Growth::new("alive", "Sandboxes that are alive and idle", axes, lines);
    let before = available_mib()?;
    let (mut alive, mut creates) = (Vec::new(), Vec::new());
    for number in 1..=options.alive {
        progress("alive", number, options.alive);
        let started = Instant::now();
        let sandbox = engine.create(spec("base")).await?;
        answers(&sandbox).await?;
        creates.push(started.elapsed().as_secs_f64() * 1e3);
        alive.push(sandbox);
        if NUMBERS.contains(&number) || number == options.alive {
            let lacking = before.saturating_sub(available_mib()?) as f64 / number as f64;
            growth.add(number as f64, [vec![mean_pss_mib(&alive).await?], vec![lacking], std::mem::take(&mut creates)]);
        }
    }
    for sandbox in alive {
        sandbox.end(EndReason::Requested).await?;
    }
    Ok(growth)
}

async fn mean_pss_mib(alive: &[Arc<Sandbox>]) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for sandbox in alive {
        bytes += sandbox.host_usage().await?.host.pss_bytes;
    }
    Ok(bytes as f64 / f64::from(1 << 20) / alive.len() as f64)
}

fn available_mib() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib >> 10)
}
