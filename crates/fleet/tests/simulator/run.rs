//! One run: clients create, faults happen, everything heals, and the checks decide.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandling_fleet::{
    CreateRequest, DrainRecord, Ledger, Presence, QuotaRecord, Reply, Settings, Transaction, Write, encode, end_drain,
    quota_key, sandbox_key, start_drain,
};
use tokio::time::{Instant, sleep};

use crate::world::{MissingFence, World, name};

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub nodes: usize,
    pub creates_per_second: usize,
    pub faults_per_second: usize,
    pub seconds: u64,
}

pub struct Finished {
    pub violations: Vec<String>,
    pub acknowledged: usize,
    pub digest: String,
}

const WORKSPACES: usize = 4;

/// Deterministic: the same plan, seed and mutation give the same digest.
pub fn run(plan: Plan, seed: u64, mutation: Option<MissingFence>) -> Finished {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        // Shorter than in production, so that one run sees many deaths.
        let settings = Settings { lost_after: Duration::from_secs(20), ..Settings::default() };
        let world = World::new(plan.nodes, seed, mutation, settings);
        set_quotas(&world, plan).await;
        for at in 0..plan.nodes {
            world.start(at);
        }
        sleep(Duration::from_secs(10)).await;
        let faults = tokio::spawn(make_faults(world.clone(), plan));
        let ends = tokio::spawn(end_sandboxes(world.clone(), plan));
        make_creates(&world, plan).await;
        faults.abort();
        heal(&world);
        sleep(Duration::from_secs(120)).await;
        ends.abort();
        sleep(Duration::from_secs(60)).await;
        finish(&world).await
    })
}

/// Some limits are reached and some are not.
async fn set_quotas(world: &World, plan: Plan) {
    for workspace in 0..WORKSPACES {
        let limit = (plan.nodes / 2 + 2) << workspace;
        let quota = QuotaRecord { limit: limit as u32, ..QuotaRecord::default() };
        let workspace = format!("w{workspace}");
        let put = Write::put(quota_key(&workspace), encode(&quota));
        world.ledger.commit(Transaction::default().then(put)).await.unwrap();
        world.checks().limits.insert(workspace, limit);
    }
}

async fn make_creates(world: &Arc<World>, plan: Plan) {
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    let mut number = 0;
    while Instant::now() < end {
        sleep(Duration::from_micros(1_000_000 / plan.creates_per_second as u64)).await;
        number += 1;
        let request = CreateRequest {
            workspace: format!("w{}", world.below(WORKSPACES)),
            idempotency_key: format!("k{number}"),
            digest: "request".to_owned(),
            template: format!("t{}", world.below(8)),
            hardware: "hardware".to_owned(),
        };
        // Some clients do not wait before they try again.
        for _ in 0..1 + usize::from(world.below(10) == 0) {
            tokio::spawn(create(world.clone(), request.clone()));
        }
    }
}

/// A client that retries through any node, and sometimes once more after the answer.
async fn create(world: Arc<World>, request: CreateRequest) {
    let key = sandbox_key(&request.workspace, &request.idempotency_key);
    for _ in 0..10 {
        let gateway = world.slot(world.below(world.slots.len())).node.clone();
        let reply = match gateway {
            Some(gateway) => tokio::time::timeout(Duration::from_secs(15), gateway.create(&request)).await.ok(),
            None => None,
        };
        match reply {
            Some(Reply::Running { .. }) => {
                world.checks().acknowledged.insert(key.clone());
                if world.below(4) > 0 {
                    return;
                }
            }
            Some(Reply::Closed(_) | Reply::QuotaExceeded) => return,
            Some(Reply::Conflict) => return world.checks().violation(format!("conflict: {key}")),
            _ => {}
        }
        sleep(Duration::from_millis(500 + world.below(4000) as u64)).await;
    }
}

/// Ends fewer than the clients create, so that quotas fill.
async fn end_sandboxes(world: Arc<World>, plan: Plan) {
    loop {
        sleep(Duration::from_secs(1)).await;
        for _ in 0..plan.creates_per_second / 3 {
            let at = world.below(plan.nodes);
            let Some(node) = world.slot(at).node.clone() else { continue };
            let sandboxes = node.sandboxes();
            if !sandboxes.is_empty() {
                let key = sandboxes[world.below(sandboxes.len())].clone();
                world.slot(at).tasks.spawn(async move { node.end(&key).await });
            }
        }
    }
}

async fn make_faults(world: Arc<World>, plan: Plan) {
    loop {
        sleep(Duration::from_secs(1)).await;
        for _ in 0..plan.faults_per_second {
            let (at, kind) = (world.below(plan.nodes), world.below(8));
            let time = Duration::from_millis(200 + world.below(45_000) as u64);
            tokio::spawn(fault(world.clone(), at, kind, time));
        }
    }
}

async fn fault(world: Arc<World>, at: usize, kind: usize, time: Duration) {
    match kind {
        0 | 1 => {
            if kind == 0 {
                world.crash(at)
            } else {
                world.kill(at)
            }
            sleep(time).await;
            if world.slot(at).node.is_none() {
                world.start(at);
            }
        }
        2 => {
            world.slot(at).pause();
            sleep(time).await;
            world.slot(at).resume();
        }
        3 | 4 => {
            let (ledger, peers) = [(true, false), (true, true), (false, true)][world.below(3)];
            (world.slot(at).cut_from_ledger, world.slot(at).cut_from_peers) = (ledger, peers);
            sleep(time).await;
            (world.slot(at).cut_from_ledger, world.slot(at).cut_from_peers) = (false, false);
        }
        5 => {
            world.slot(at).slow = Duration::from_millis(world.below(1500) as u64);
            sleep(time).await;
            world.slot(at).slow = Duration::ZERO;
        }
        6 => world.slot(at).clock_ahead += Duration::from_millis(world.below(20_000) as u64),
        _ => {
            start_drain(&world.ledger, &name(at), &DrainRecord::default()).await.unwrap();
            sleep(time).await;
            end_drain(&world.ledger, &name(at)).await.unwrap();
        }
    }
}

/// No more faults, except that some nodes never come back.
fn heal(world: &Arc<World>) {
    world.faulty.store(false, Ordering::Relaxed);
    for at in 0..world.slots.len() {
        {
            let mut slot = world.slot(at);
            (slot.cut_from_ledger, slot.cut_from_peers, slot.slow) = (false, false, Duration::ZERO);
            slot.resume();
        }
        if at > 0 && world.below(20) == 0 {
            world.crash(at);
        } else if world.slot(at).node.is_none() {
            world.start(at);
        }
    }
}

async fn finish(world: &World) -> Finished {
    let up = |at: &usize| world.slot(*at).node.is_some();
    let mut noted = BTreeSet::new();
    for at in (0..world.slots.len()).filter(up) {
        noted.extend(world.machines(at).into_keys());
        let hibernated = world.machines(at).into_iter().filter(|(_, presence)| *presence == Presence::Hibernated);
        hibernated.for_each(|((key, _), _)| world.checks().violation(format!("leftover: {key} sleeps")));
    }
    let mut used = std::collections::BTreeMap::<String, u32>::new();
    for held in world.ledger.list("held/", None, usize::MAX).await.unwrap().records {
        let value: sandling_fleet::HeldRecord = serde_json::from_str(&held.value).unwrap();
        *used.entry(held.key.split('/').nth(2).unwrap().to_owned()).or_default() += value.permits;
    }
    for record in world.ledger.list("quota/", None, usize::MAX).await.unwrap().records {
        let quota: QuotaRecord = serde_json::from_str(&record.value).unwrap();
        let held = used.get(&record.key["quota/".len()..]).copied().unwrap_or_default();
        if held != quota.used || quota.used > quota.limit {
            let QuotaRecord { used, limit, .. } = quota;
            world.checks().violation(format!("quota: {} counts {used} of {limit}, nodes hold {held}", record.key));
        }
    }
    let mut checks = world.checks();
    checks.finish(&noted);
    Finished {
        violations: std::mem::take(&mut checks.violations),
        acknowledged: checks.acknowledged.len(),
        digest: checks.digest(),
    }
}
