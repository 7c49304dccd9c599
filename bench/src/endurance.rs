//! Many sandboxes: sequentially, concurrently, and alive together. None may fail or be left behind.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use sandling_engine::{EndReason, Engine, RunSpec};

use crate::contenders::{progress, spec};
use crate::footprint::Footprint;
use crate::report::Report;
use crate::{Options, engine};

const AT_ONCE: usize = 20;
/// Before the footprint is measured for the first time: pools and caches have their size by then.
const WARM_UP: usize = 50;

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (engine, home) = engine(options, 0).await?;
    one_after_another(options, &engine, home.path(), report).await?;
    at_once(options, &engine, report).await?;
    alive_together(options, &engine, report).await?;
    engine.close().await;
    let left = std::fs::read_dir(home.path().join("sandboxes"))?.count();
    ensure!(left == 0, "{left} sandboxes were left behind");
    report.count("sandboxes left behind", left as u64);
    Ok(())
}

async fn one_after_another(
    options: &Options,
    engine: &Arc<Engine>,
    home: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut samples = Vec::new();
    let footprint = || Footprint::of(std::process::id(), home);
    let mut before = footprint();
    for round in 0..options.creates {
        progress("one after another", round, options.creates);
        if round == WARM_UP.min(options.creates / 2) {
            before = footprint();
        }
        let started = Instant::now();
        let sandbox = engine.create(spec("base")).await?;
        samples.push(started.elapsed());
        sandbox.end(EndReason::Requested).await?;
    }
    let after = footprint();
    report.add("create by a restore, one after another", "sandling", &samples);
    before.report("before", report);
    after.report("after", report);
    let grown = after.grown_from(&before);
    ensure!(grown.is_empty(), "after {} creates: {}", options.creates, grown.join(", "));
    Ok(())
}

/// Several times: until each has answered, and until each has ended as well.
async fn at_once(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let [mut answered, mut ended] = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds.clamp(1, 10) {
        let started = Instant::now();
        let mut making = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE {
            let engine = engine.clone();
            making.spawn(async move {
                let sandbox = engine.create(spec("base")).await?;
                let ran = sandbox.run(RunSpec::shell("echo up"))?.collect().await?;
                ensure!(ran.stdout == b"up\n", "{ran:?}");
                let answered = started.elapsed();
                sandbox.end(EndReason::Requested).await?;
                Ok((answered, started.elapsed()))
            });
        }
        let finished: Result<Vec<(Duration, Duration)>, anyhow::Error> = making.join_all().await.into_iter().collect();
        let finished = finished?;
        answered.extend(finished.iter().map(|times| times.0).max());
        ended.extend(finished.iter().map(|times| times.1).max());
    }
    report.add("20 at once, until all have answered", "sandling", &answered);
    report.add("20 at once, until all have answered and ended", "sandling", &ended);
    Ok(())
}

async fn alive_together(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let mut alive = Vec::new();
    for round in 0..options.alive {
        progress("alive at once", round, options.alive);
        alive.push(engine.create(spec("base")).await?);
    }
    let mut pss = 0;
    for sandbox in &alive {
        ensure!(sandbox.run(RunSpec::shell("true"))?.collect().await?.exit.code == 0, "one does not answer");
        pss += sandbox.usage().await?.host.pss_bytes;
    }
    report.count("sandboxes alive at once", alive.len() as u64);
    report.count("MiB of memory each of them holds (Pss)", pss / alive.len().max(1) as u64 / (1 << 20));
    for sandbox in alive {
        sandbox.end(EndReason::Requested).await?;
    }
    Ok(())
}
