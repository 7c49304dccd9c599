//! The measurements that need one or two sandboxes at a time. Each round visits all sizes, so that a busy moment of the
//! host affects all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use sandling_engine::{CreateSpec, EndReason, Engine, Point, RunSpec, Sandbox, SnapshotSpec};

use super::alive;
use super::chart;
use super::series::{Growth, ms};
use crate::contenders::{progress, spec};
use crate::forks::{answers, end, fork, session, write_again};
use crate::{Options, engine};

const MEMORY_MIB: [u32; 5] = [256, 512, 1024, 2048, 4096];
const WRITTEN_MIB: [u32; 6] = [16, 64, 128, 256, 384, 512];
/// The memory of the sessions that write.
const SESSION_MIB: u32 = 2048;
const DEPTHS: usize = 24;
const FILES: [usize; 5] = [10, 100, 500, 1000, 2000];
const MILLISECONDS: &str = "milliseconds";

/// Writes each chart as soon as it is measured. Those that bake templates in other sizes come last.
pub async fn measure(options: &Options) -> anyhow::Result<()> {
    let (engine, _home) = engine(options, 0).await?;
    save(options, &depth(options, &engine).await?)?;
    save(options, &files(options, &engine).await?)?;
    for growth in alive::measure(options, &engine).await? {
        save(options, &growth)?;
    }
    save(options, &written(options, &engine).await?)?;
    save(options, &memory(options, &engine).await?)?;
    engine.close().await;
    println!("written to {}", options.out.display());
    Ok(())
}

fn save(options: &Options, growth: &Growth) -> anyhow::Result<()> {
    let place = |ending: &str| options.out.join(format!("growth-{}.{ending}", growth.name));
    std::fs::write(place("svg"), chart::svg(growth))?;
    Ok(std::fs::write(place("json"), serde_json::to_vec_pretty(growth)?)?)
}

async fn memory(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<Growth> {
    let axes = ["memory of the guest, MiB", MILLISECONDS];
    let mut growth = Growth::new("memory", "Create → first answer, by the guest's memory", axes, ["create", "end"]);
    let of = |memory_mib| CreateSpec { memory_mib: Some(memory_mib), ..spec("base") };
    for memory_mib in MEMORY_MIB {
        // Bakes the template in this size.
        engine.create(of(memory_mib)).await?.end(EndReason::Requested).await?;
    }
    let mut samples = MEMORY_MIB.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..options.rounds {
        progress("sizes of memory", round, options.rounds);
        for (memory_mib, [creates, ends]) in MEMORY_MIB.into_iter().zip(&mut samples) {
            let started = Instant::now();
            let sandbox = engine.create(of(memory_mib)).await?;
            answers(&sandbox).await?;
            creates.push(started.elapsed());
            let started = Instant::now();
            sandbox.end(EndReason::Requested).await?;
            ends.push(started.elapsed());
        }
    }
    for (memory_mib, of_size) in MEMORY_MIB.into_iter().zip(samples) {
        growth.add(memory_mib.into(), of_size.iter().map(|samples| ms(samples)));
    }
    Ok(growth)
}

async fn written(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<Growth> {
    let lines = ["fork → first answer", "pause of the parent"];
    let axes = ["written by the session since its last save, MiB", MILLISECONDS];
    let mut growth = Growth::new("written", "Fork, by what the session has written", axes, lines);
    let mut parents = Vec::new();
    for mib in WRITTEN_MIB {
        parents.push((session(engine, SESSION_MIB, mib).await?, mib, [Vec::new(), Vec::new()]));
    }
    for round in 0..options.rounds {
        progress("forks", round, options.rounds);
        for (parent, _, [answered, pauses]) in &mut parents {
            write_again(parent).await?;
            let started = Instant::now();
            let made = fork(engine, parent, 1).await?;
            answered.push(started.elapsed());
            pauses.push(Duration::from_secs_f64(made[0].receipt.pause_ms / 1e3));
            end(made).await?;
        }
    }
    for (parent, mib, samples) in parents {
        growth.add(mib.into(), samples.iter().map(|samples| ms(samples)));
        parent.end(EndReason::Requested).await?;
    }
    Ok(growth)
}

/// A snapshot of a sandbox that was made of a snapshot, and so on.
async fn depth(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<Growth> {
    let lines = ["create from it → first answer", "snapshot"];
    let title = "Snapshots of sandboxes that were made of snapshots";
    let mut growth = Growth::new("depth", title, ["depth of the snapshot", MILLISECONDS], lines);
    let mut samples = vec![[Vec::new(), Vec::new()]; DEPTHS];
    for round in 0..options.rounds.min(3) {
        progress("depths", round, options.rounds);
        let mut sandbox = engine.create(spec("base")).await?;
        for [creates, saves] in &mut samples {
            run(&sandbox, "head -c 4000000 /dev/urandom >/dev/shm/written").await?;
            let started = Instant::now();
            let (snapshot, _) = engine.snapshot(&sandbox, SnapshotSpec::default()).await?;
            saves.push(started.elapsed());
            sandbox.end(EndReason::Requested).await?;
            let started = Instant::now();
            sandbox = engine.create(CreateSpec { from_snapshot: Some(snapshot.id), ..spec("base") }).await?;
            answers(&sandbox).await?;
            creates.push(started.elapsed());
        }
        sandbox.end(EndReason::Requested).await?;
    }
    for (index, of_depth) in samples.iter().enumerate() {
        growth.add(index as f64 + 1.0, of_depth.iter().map(|samples| ms(samples)));
    }
    Ok(growth)
}

async fn files(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<Growth> {
    let lines = ["list of changes", "patch"];
    let axes = ["changed files", MILLISECONDS];
    let mut growth = Growth::new("diff", "Diff of a checkpoint and now, by changed files", axes, lines);
    for count in FILES {
        let sandbox = engine.create(CreateSpec { checkpoints: Some(20), ..spec("base") }).await?;
        engine.checkpoint(&sandbox, Some("before".to_owned())).await?;
        run(&sandbox, &format!("mkdir -p /root/new; for n in $(seq {count}); do echo $n >/root/new/$n; done")).await?;
        let [mut lists, mut patches] = [Vec::new(), Vec::new()];
        for round in 0..options.rounds.min(3) {
            progress(&format!("diffs of {count} files"), round, options.rounds);
            let from = engine.point(&sandbox.info().workspace, Some(&sandbox), "before").await?;
            let started = Instant::now();
            let diff = engine.diff(&from, &Point::Now(sandbox.clone()), "/root").await?;
            lists.push(started.elapsed());
            let found = diff.changes().len();
            ensure!(found >= count, "the diff has {found} changes of {count}");
            let started = Instant::now();
            diff.patch().await?;
            patches.push(started.elapsed());
        }
        growth.add(count as f64, [ms(&lists), ms(&patches)]);
        sandbox.end(EndReason::Requested).await?;
    }
    Ok(growth)
}

async fn run(sandbox: &Arc<Sandbox>, line: &str) -> anyhow::Result<()> {
    let ran = sandbox.run(RunSpec::shell(line))?.collect().await?;
    ensure!(ran.exit.code == 0, "`{line}`: {ran:?}");
    Ok(())
}
