//! Measures all running sandboxes and the host every few seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem};

use futures_util::stream::{self, StreamExt};
use sandling_engine::{Engine, SandboxInfo, State};
use tokio::time::MissedTickBehavior;

use super::history::{HOST, MetricHistory, now};
use super::host::HostResources;
use super::series::{FINE, MetricPoint, SeriesInfo};

/// Sandboxes that are measured at the same time.
const AT_ONCE: usize = 4;
/// Sandboxes whose pages are counted in one round. It takes milliseconds for each, so a large number takes turns.
const COUNTED_PER_ROUND: usize = 16;
/// Old series are removed after this many rounds.
const ROUNDS_PER_SWEEP: u64 = 12;

/// Counters that only rise. The points have how fast they do.
#[derive(Debug, Clone, Copy)]
struct Counters {
    cpu_ms: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

struct Measured {
    name: String,
    info: SeriesInfo,
    counters: Counters,
    at: Instant,
    memory_bytes: u64,
    /// The part of the memory that is a share of memory of several sandboxes.
    shared_bytes: u64,
    disk_bytes: u64,
}

/// What is remembered of a measurement until the next one.
struct Earlier {
    counters: Counters,
    at: Instant,
    shared_bytes: u64,
}

/// Measures until the task is aborted.
pub async fn record_metrics(history: Arc<MetricHistory>, engine: Arc<Engine>) {
    if let Err(error) = history.prepare() {
        tracing::warn!(%error, "metrics are not recorded, because their directory cannot be made");
        return;
    }
    let mut before = HashMap::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(FINE.step));
    // After a pause of the host, one measurement is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for round in 0_u64.. {
        ticks.tick().await;
        let measured = measure(&engine, &before, round).await;
        let (task_history, task_before) = (history.clone(), mem::take(&mut before));
        let writing = move || write(&task_history, task_before, measured, round % ROUNDS_PER_SWEEP == 0);
        match tokio::task::spawn_blocking(writing).await {
            Ok((counters, result)) => {
                before = counters;
                if let Err(error) = result {
                    tracing::debug!(%error, "could not write metrics");
                }
            }
            Err(error) => tracing::warn!(%error, "could not write metrics"),
        }
    }
}

async fn measure(engine: &Arc<Engine>, before: &HashMap<String, Earlier>, round: u64) -> Vec<Measured> {
    let mut running = engine.list();
    running.retain(|info| matches!(info.state, State::Running | State::Paused));
    let count = running.len();
    let shared = |index: usize, info: &SandboxInfo| {
        let known = before.get(info.id.as_str()).map(|earlier| earlier.shared_bytes);
        known.filter(|_| !has_turn(index, count, round))
    };
    let running: Vec<_> = running.into_iter().enumerate().map(|(index, info)| (shared(index, &info), info)).collect();
    let measuring = running.into_iter().map(|(shared, info)| measure_sandbox(engine, info, shared));
    let found: Vec<_> = stream::iter(measuring).buffer_unordered(AT_ONCE).collect().await;
    let mut measured: Vec<_> = found.into_iter().flatten().collect();
    measured.extend(measure_host(engine));
    measured
}

/// Whether the pages of this one of `count` sandboxes are counted in this round.
fn has_turn(index: usize, count: usize, round: u64) -> bool {
    let groups = count.div_ceil(COUNTED_PER_ROUND).max(1);
    index % groups == round as usize % groups
}

/// None for a sandbox that ended or hibernated meanwhile. `shared_bytes` is its share of memory that it shares with
/// others, if that is measured in another round.
async fn measure_sandbox(engine: &Arc<Engine>, info: SandboxInfo, shared_bytes: Option<u64>) -> Option<Measured> {
    let sandbox = engine.get(&info.id)?;
    let usage = sandbox.quick_usage().await.ok()?;
    let shared_bytes = match shared_bytes {
        Some(bytes) => bytes,
        None => sandbox.host_usage().await.ok()?.host.pss_bytes.saturating_sub(usage.anonymous_bytes),
    };
    let network = sandbox.network_counts();
    Some(Measured {
        name: info.id.as_str().to_owned(),
        info: SeriesInfo {
            workspace: Some(info.workspace),
            cpus: info.vcpus,
            memory_total_bytes: u64::from(info.memory_mib) << 20,
            disk_total_bytes: u64::from(info.disk_mib) << 20,
        },
        counters: Counters {
            cpu_ms: usage.cpu.as_millis() as u64,
            received_bytes: network.received_bytes,
            sent_bytes: network.sent_bytes,
        },
        at: Instant::now(),
        memory_bytes: usage.anonymous_bytes + shared_bytes,
        shared_bytes,
        disk_bytes: usage.disk_bytes,
    })
}

fn measure_host(engine: &Engine) -> Option<Measured> {
    let host = HostResources::read(engine.config().home.root()).ok()?;
    Some(Measured {
        name: HOST.to_owned(),
        info: SeriesInfo {
            workspace: None,
            cpus: host.cpus,
            memory_total_bytes: host.memory_total_bytes,
            disk_total_bytes: host.disk_total_bytes,
        },
        counters: Counters { cpu_ms: host.cpu_ms, received_bytes: host.received_bytes, sent_bytes: host.sent_bytes },
        at: Instant::now(),
        memory_bytes: host.memory_total_bytes.saturating_sub(host.memory_available_bytes),
        shared_bytes: 0,
        disk_bytes: host.disk_total_bytes.saturating_sub(host.disk_available_bytes),
    })
}

fn write(
    history: &MetricHistory,
    before: HashMap<String, Earlier>,
    measured: Vec<Measured>,
    sweeps: bool,
) -> (HashMap<String, Earlier>, io::Result<()>) {
    let time = now();
    let mut result = Ok(());
    let mut next = HashMap::with_capacity(measured.len());
    for one in measured {
        // The first measurement has nothing to compare with, and becomes a point with the next one.
        if let Some(earlier) = before.get(&one.name) {
            result = result.and(history.add(&one.name, &one.info, &point(&one, earlier, time)));
        }
        let earlier = Earlier { counters: one.counters, at: one.at, shared_bytes: one.shared_bytes };
        next.insert(one.name, earlier);
    }
    if sweeps {
        result = result.and(history.sweep());
    }
    (next, result)
}

fn point(one: &Measured, earlier: &Earlier, time: u64) -> MetricPoint {
    let before = earlier.counters;
    let seconds = one.at.duration_since(earlier.at).as_secs_f64().max(0.001);
    // A counter begins anew with the process that it is of.
    let rise = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
    MetricPoint {
        time,
        cpu_percent: rise(one.counters.cpu_ms, before.cpu_ms).round() / 10.0,
        memory_bytes: one.memory_bytes,
        disk_bytes: one.disk_bytes,
        received_rate: rise(one.counters.received_bytes, before.received_bytes) as u64,
        sent_rate: rise(one.counters.sent_bytes, before.sent_bytes) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(cpu_ms: u64, received_bytes: u64) -> Counters {
        Counters { cpu_ms, received_bytes, sent_bytes: 0 }
    }

    fn measured(counters: Counters, at: Instant) -> Measured {
        let info = SeriesInfo { workspace: None, cpus: 1, memory_total_bytes: 1, disk_total_bytes: 1 };
        Measured { name: "x".to_owned(), info, counters, at, memory_bytes: 3, shared_bytes: 1, disk_bytes: 4 }
    }

    #[test]
    fn a_point_has_what_was_used_since_the_last_one() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let earlier = Earlier { counters: counters(500, 1_000), at: start, shared_bytes: 1 };
        let made = point(&measured(counters(3_000, 1_500), later), &earlier, 77);
        assert_eq!((made.time, made.cpu_percent, made.received_rate, made.memory_bytes), (77, 50.0, 100, 3));
        // The machine was restarted.
        let made = point(&measured(counters(100, 50), later), &earlier, 77);
        assert_eq!((made.cpu_percent, made.received_rate), (2.0, 10));
    }

    #[test]
    fn many_sandboxes_take_turns() {
        for count in [1_usize, 16, 17, 500] {
            let groups = count.div_ceil(COUNTED_PER_ROUND) as u64;
            let turns = |index| (0..groups).filter(|round| has_turn(index, count, *round)).count();
            assert!((0..count).all(|index| turns(index) == 1), "{count}");
            let most = (0..groups).map(|round| (0..count).filter(|index| has_turn(*index, count, round)).count()).max();
            assert!(most.unwrap() <= COUNTED_PER_ROUND, "{count}: {most:?}");
        }
    }

    #[test]
    fn the_first_measurement_is_no_point() {
        let dir = tempfile::tempdir().unwrap();
        let history = MetricHistory::new(dir.path().to_owned());
        let at = Instant::now();
        let (before, result) = write(&history, HashMap::new(), vec![measured(counters(1, 1), at)], true);
        assert!(result.is_ok() && !dir.path().join("x").exists());
        let (_, result) = write(&history, before, vec![measured(counters(9, 9), at)], false);
        assert!(result.is_ok() && dir.path().join("x").exists());
    }
}
