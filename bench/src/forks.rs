//! Copies of a session: how long the parent pauses, how soon a child answers, how much memory children use, and the
//! times of hibernation, wake and checkpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use sandling_engine::{Cause, CellOutput, CreateSpec, EndReason, Engine, Fork, ForkSpec, RunSpec, Sandbox};
use sandling_protocol::{ContextSpec, Language, Program};

use crate::contenders::{bare_host, progress, spec};
use crate::report::Report;
use crate::{Options, engine};

/// The guest's memory, and how much of it the session has written.
const SESSIONS: [(u32, u32); 4] = [(512, 16), (2048, 16), (512, 300), (2048, 500)];
/// The sessions that get ten children at once.
const TREES: [(u32, u32); 2] = [(512, 16), (2048, 500)];
const CHILDREN: usize = 10;
const CONTEXT: &str = "bench";
const SLEEPER_MIB: u32 = 100;

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (engine, _home) = engine(options, 0).await?;
    report.host.insert("accelerator".to_owned(), engine.probe().accelerator.to_string());
    for (memory_mib, written_mib) in SESSIONS {
        forks(options, &engine, memory_mib, written_mib, report).await?;
    }
    trees(options, &engine, report).await?;
    sleep(options, &engine, report).await?;
    checkpoints(options, &engine, report).await?;
    engine.close().await;
    Ok(())
}

/// A session that has written this much memory and keeps writing to it.
pub async fn session(engine: &Arc<Engine>, memory_mib: u32, written_mib: u32) -> anyhow::Result<Arc<Sandbox>> {
    let sandbox = engine.create(CreateSpec { memory_mib: Some(memory_mib), ..spec("base") }).await?;
    let context = ContextSpec {
        id: CONTEXT.to_owned(),
        language: Language::Python,
        cwd: None,
        env: Default::default(),
        user: None,
    };
    sandbox.create_context(context).await?;
    cell(&sandbox, &format!("import random\nwritten = bytearray(random.randbytes(1 << 20)) * {written_mib}")).await?;
    Ok(sandbox)
}

/// Writes to every page, so that the last save covers none of them.
pub async fn write_again(sandbox: &Arc<Sandbox>) -> anyhow::Result<()> {
    cell(sandbox, "written[::4096] = random.randbytes(len(written) // 4096)").await
}

async fn cell(sandbox: &Arc<Sandbox>, code: &str) -> anyhow::Result<()> {
    let mut cell = sandbox.run_cell(CONTEXT, code, None, 1 << 20)?;
    loop {
        if let CellOutput::Done(report) = cell.next().await? {
            ensure!(report.error.is_none(), "{:?}", report.error);
            return Ok(());
        }
    }
}

pub async fn answers(sandbox: &Arc<Sandbox>) -> anyhow::Result<()> {
    let program = Program::Argv(vec!["/bin/true".to_owned()]);
    ensure!(sandbox.run(RunSpec::new(program))?.collect().await?.exit.code == 0, "/bin/true failed");
    Ok(())
}

pub async fn fork(engine: &Arc<Engine>, parent: &Arc<Sandbox>, children: usize) -> anyhow::Result<Vec<Fork>> {
    let forks = engine.fork(parent, ForkSpec { children, ..ForkSpec::default() }).await?;
    let answering =
        forks.iter().map(|fork| fork.sandbox.clone()).map(|child| tokio::spawn(async move { answers(&child).await }));
    for answered in answering.collect::<Vec<_>>() {
        answered.await??;
    }
    Ok(forks)
}

pub async fn end(forks: Vec<Fork>) -> anyhow::Result<()> {
    for fork in forks {
        fork.sandbox.end(EndReason::Requested).await?;
    }
    Ok(())
}

async fn forks(
    options: &Options,
    engine: &Arc<Engine>,
    memory_mib: u32,
    written_mib: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let parent = session(engine, memory_mib, written_mib).await?;
    let what = format!("{written_mib} MiB written of {memory_mib}");
    let [mut pauses, mut firsts, mut writes] = [Vec::new(), Vec::new(), Vec::new()];
    let mut host = bare_host();
    for round in 0..options.rounds {
        progress(&format!("forks, {what}"), round, options.rounds);
        host.run()?;
        write_again(&parent).await?;
        let started = Instant::now();
        let made = fork(engine, &parent, 1).await?;
        firsts.push(started.elapsed());
        pauses.push(Duration::from_secs_f64(made[0].receipt.pause_ms / 1e3));
        writes.push(Duration::from_secs_f64(made[0].receipt.write_ms / 1e3));
        end(made).await?;
    }
    report.add(&format!("the parent's pause, {what}"), "sandling", &pauses);
    report.add(&format!("pages written behind it, {what}"), "sandling", &writes);
    report.add(&format!("fork → first answer, {what}"), "sandling", &firsts);
    report.add("python3 -c meanwhile", host.name, &host.samples);
    parent.end(EndReason::Requested).await?;
    Ok(())
}

/// Ten children at once, and their memory.
async fn trees(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    for (memory_mib, written_mib) in TREES {
        let parent = session(engine, memory_mib, written_mib).await?;
        let what = format!("{written_mib} MiB written of {memory_mib}");
        let (mut samples, mut held, mut added) = (Vec::new(), 0, 0);
        for round in 0..options.rounds {
            progress(&format!("ten children, {what}"), round, options.rounds);
            write_again(&parent).await?;
            let before = pss_bytes(&parent).await?;
            let started = Instant::now();
            let made = fork(engine, &parent, CHILDREN).await?;
            samples.push(started.elapsed());
            held = 0;
            for fork in &made {
                held += pss_bytes(&fork.sandbox).await?;
            }
            // Pages that the parent alone held before are counted as the children's in part. They add nothing.
            added = (held + pss_bytes(&parent).await?).saturating_sub(before);
            end(made).await?;
        }
        report.add(&format!("fork → ten children answer, {what}"), "sandling", &samples);
        report.count(&format!("MiB of Pss of ten children, {what}"), held >> 20);
        report.count(&format!("MiB of Pss that ten children add, {what}"), added >> 20);
        parent.end(EndReason::Requested).await?;
    }
    Ok(())
}

async fn pss_bytes(sandbox: &Sandbox) -> anyhow::Result<u64> {
    Ok(sandbox.usage().await?.host.pss_bytes)
}

async fn sleep(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let sandbox = session(engine, 512, SLEEPER_MIB).await?;
    let [mut asleep, mut awake] = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        progress("hibernate and wake", round, options.rounds);
        write_again(&sandbox).await?;
        let started = Instant::now();
        sandbox.hibernate().await?;
        asleep.push(started.elapsed());
        let started = Instant::now();
        sandbox.wake().await?;
        answers(&sandbox).await?;
        awake.push(started.elapsed());
    }
    report.add(&format!("hibernate, {SLEEPER_MIB} MiB written"), "sandling", &asleep);
    report.add(&format!("wake → first answer, {SLEEPER_MIB} MiB written"), "sandling", &awake);
    Ok(sandbox.end(EndReason::Requested).await?)
}

/// The same command with and without a checkpoint before it, and the time of a rewind.
async fn checkpoints(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let plain = engine.create(spec("base")).await?;
    let kept = engine.create(CreateSpec { checkpoints: Some(20), ..spec("base") }).await?;
    let [mut without, mut with, mut added] = [Vec::new(), Vec::new(), Vec::new()];
    let [mut to_automatic, mut to_requested] = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        progress("checkpoints", round, options.rounds);
        let started = Instant::now();
        answers(&plain).await?;
        without.push(started.elapsed());
        // Waits for the background write of the last checkpoint, so that it does not affect this round.
        engine.timeline(&kept).await;
        let started = Instant::now();
        engine.before(&kept, Cause::Exec, "true").await?;
        added.push(started.elapsed());
        answers(&kept).await?;
        with.push(started.elapsed());
    }
    let automatic = engine.timeline(&kept).await.checkpoints().last().map(|one| one.number).unwrap_or_default();
    engine.name_checkpoint(&kept, &automatic.to_string(), Some("automatic".to_owned())).await?;
    engine.checkpoint(&kept, Some("requested".to_owned())).await?;
    for round in 0..options.rounds.min(20) {
        progress("rewinds", round, options.rounds.min(20));
        for (name, samples) in [("automatic", &mut to_automatic), ("requested", &mut to_requested)] {
            let started = Instant::now();
            engine.rewind(&kept, name).await?;
            answers(&kept).await?;
            samples.push(started.elapsed());
        }
    }
    report.add("an exec without a checkpoint", "sandling", &without);
    report.add("an exec with a checkpoint before it", "sandling", &with);
    report.add("what the checkpoint adds", "sandling", &added);
    report.add("rewind to an automatic checkpoint → first answer", "sandling", &to_automatic);
    report.add("rewind to a requested checkpoint → first answer", "sandling", &to_requested);
    plain.end(EndReason::Requested).await?;
    Ok(kept.end(EndReason::Requested).await?)
}
