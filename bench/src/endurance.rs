//! Many sandboxes: sequentially, concurrently, and alive together. None may fail or be left behind.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sandling_engine::{EndReason, RunSpec};

use crate::contenders::{progress, spec};
use crate::report::Report;
use crate::{Options, engine};

const AT_ONCE: usize = 20;

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (engine, home) = engine(options, 0).await?;
    let mut samples = Vec::new();
    for round in 0..options.creates {
        progress("one after another", round, options.creates);
        let started = Instant::now();
        let sandbox = engine.create(spec("base")).await?;
        samples.push(started.elapsed());
        sandbox.end(EndReason::Requested).await?;
    }
    report.add("create by a restore, one after another", "sandling", &samples);

    let started = Instant::now();
    let mut making = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let engine = engine.clone();
        making.spawn(async move {
            let sandbox = engine.create(spec("base")).await?;
            let ran = sandbox.run(RunSpec::shell("echo up"))?.collect().await?;
            ensure!(ran.stdout == b"up\n", "{ran:?}");
            sandbox.end(EndReason::Requested).await?;
            Ok(started.elapsed())
        });
    }
    let finished: Result<Vec<Duration>, anyhow::Error> = making.join_all().await.into_iter().collect();
    report.add("20 at once, until each has answered and gone", "sandling", &finished?);

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
    engine.close().await;
    let left = std::fs::read_dir(home.path().join("sandboxes"))?.count();
    ensure!(left == 0, "{left} sandboxes were left behind");
    report.count("sandboxes left behind", left as u64);
    Ok(())
}
