//! Sandboxes that are alive together: their memory, and how long one more takes.

use std::sync::Arc;
use std::time::Instant;

use sandling_engine::{EndReason, Engine, Sandbox};

use super::series::Growth;
use crate::Options;
use crate::contenders::{progress, spec};
use crate::forks::answers;

/// Where the memory is measured.
const NUMBERS: [usize; 8] = [1, 10, 25, 50, 100, 200, 300, 400];

pub async fn measure(options: &Options, engine: &Arc<Engine>) -> anyhow::Result<[Growth; 2]> {
    let axis = "sandboxes alive";
    let title = "Memory of sandboxes that are alive and idle";
    let mut memory = Growth::new("alive", title, [axis, "MiB"], ["memory of each (Pss)"]);
    let title = "One more sandbox, by how many are alive";
    let mut create = Growth::new("crowd", title, [axis, "milliseconds"], ["create → first answer"]);
    let (mut alive, mut creates) = (Vec::new(), Vec::new());
    for number in 1..=options.alive {
        progress("alive", number, options.alive);
        let started = Instant::now();
        let sandbox = engine.create(spec("base")).await?;
        answers(&sandbox).await?;
        creates.push(started.elapsed().as_secs_f64() * 1e3);
        alive.push(sandbox);
        if NUMBERS.contains(&number) || number == options.alive {
            memory.add(number as f64, [vec![mean_pss_mib(&alive).await?]]);
            create.add(number as f64, [std::mem::take(&mut creates)]);
        }
    }
    for sandbox in alive {
        sandbox.end(EndReason::Requested).await?;
    }
    Ok([memory, create])
}

async fn mean_pss_mib(alive: &[Arc<Sandbox>]) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for sandbox in alive {
        bytes += sandbox.host_usage().await?.host.pss_bytes;
    }
    Ok(bytes as f64 / f64::from(1 << 20) / alive.len() as f64)
}
