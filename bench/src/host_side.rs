//! The host's side of a cold restore: everything until the guest's first instruction, and then what waits for the guest.
//!
//! The process cache is off, as it is with KVM, where nothing is translated. The host's steps are the same with KVM and
//! without, except for the few that create the virtual processors. The guest's steps are emulated where there is no KVM.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use sandling_engine::{EndReason, Engine, EngineConfig};
use tempfile::TempDir;

use crate::Options;
use crate::contenders::{bare_host, progress, spec};
use crate::forks::answers;
use crate::report::Report;
use crate::steps::Steps;

/// The steps before the guest's first instruction, in their order.
const HOST: [(&str, &str); 6] = [
    ("machine.files", "files of the machine"),
    ("machine.jail", "jail, until QEMU is executed"),
    ("machine.qemu", "QEMU's startup, until it answers"),
    ("machine.load", "memory and device state"),
    ("machine.record", "check of the boundary, record"),
    ("machine.resume", "control channel, resume"),
];
/// The steps that wait for the guest.
const GUEST: [(&str, &str); 2] = [("machine.answer", "guest: answer"), ("create.identify", "guest: identity")];
const TOGETHER: &str = "cold restore → first instruction of the guest";

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let steps = Steps::install()?;
    let (engine, _home) = cold_engine(options).await?;
    report.host.insert("accelerator".to_owned(), engine.probe().accelerator.to_string());
    let mut samples: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    let mut host = bare_host();
    for round in 0..options.rounds {
        progress("cold restores", round, options.rounds);
        host.run()?;
        steps.take();
        let started = Instant::now();
        let sandbox = engine.create(spec("base")).await?;
        samples.entry("create").or_default().push(started.elapsed());
        let taken = steps.take();
        let of = |name: &str| taken.get(name).copied().with_context(|| format!("there was no step {name}"));
        let mut together = Duration::ZERO;
        for (name, title) in HOST {
            together += of(name)?;
            samples.entry(title).or_default().push(of(name)?);
        }
        samples.entry(TOGETHER).or_default().push(together);
        for (name, title) in GUEST {
            samples.entry(title).or_default().push(of(name)?);
        }
        answers(&sandbox).await?;
        sandbox.end(EndReason::Requested).await?;
    }
    let titles = HOST.iter().map(|step| step.1).chain([TOGETHER]).chain(GUEST.iter().map(|step| step.1));
    for title in titles.chain(["create"]) {
        report.add(title, "sandling", &samples[title]);
    }
    report.add("python3 -c meanwhile", host.name, &host.samples);
    engine.close().await;
    Ok(())
}

/// An engine without standbys and without the process cache.
async fn cold_engine(options: &Options) -> anyhow::Result<(Arc<Engine>, TempDir)> {
    let (config, dir) = crate::config(options)?;
    let config = EngineConfig { process_cache: false, ..config };
    Ok((Engine::open(config).await.context("the engine did not open")?, dir))
}
