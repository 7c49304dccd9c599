//! Runs the fleet's real decisions with simulated nodes, network, clocks and faults.
//!
//! By default seeds run for `SANDLING_SIMULATOR_SECONDS` (5). `SANDLING_SIMULATOR_SEEDS` is a number of seeds instead.
//! `SANDLING_SIMULATOR_SEED` runs one. A seed that fails is printed and kept in the target directory, and runs first the
//! next time. `SANDLING_SIMULATOR_COSTS` names a file for what a create costs in fleets of up to 1,000 nodes.
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod checks;
mod costs;
mod failover;
mod run;
mod world;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use run::{Finished, Plan, run};
use world::MissingFence;

const SMALL: Plan = Plan { nodes: 8, creates_per_second: 20, faults_per_second: 1, seconds: 100 };

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn kept_seeds() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simulator-seeds")
}

/// Small fleets have the most conflicts. Every tenth is larger.
fn plan(seed: u64) -> Plan {
    let nodes = if seed % 10 == 9 { 60 } else { 3 + (seed % 7) as usize * 2 };
    Plan { nodes, faults_per_second: 1 + nodes / 10, creates_per_second: 10 + nodes, ..SMALL }
}

fn check(plan: Plan, seed: u64) {
    println!("seed {seed} with {} nodes", plan.nodes);
    let finished = run(plan, seed, None);
    if !finished.violations.is_empty() {
        let mut kept = fs::OpenOptions::new().create(true).append(true).open(kept_seeds()).unwrap();
        writeln!(kept, "{seed}").unwrap();
        let violations = finished.violations.join("\n  ");
        panic!("seed {seed} fails (SANDLING_SIMULATOR_SEED={seed} repeats it):\n  {violations}");
    }
    assert!(finished.acknowledged > 0, "seed {seed} acknowledged no create");
}

#[test]
fn random_faults_break_no_promise() {
    if let Some(seed) = variable("SANDLING_SIMULATOR_SEED") {
        return check(plan(seed), seed);
    }
    let kept = fs::read_to_string(kept_seeds()).unwrap_or_default();
    for seed in kept.lines().map(|seed| seed.parse().unwrap()) {
        check(plan(seed), seed);
    }
    if let Some(seeds) = variable("SANDLING_SIMULATOR_SEEDS") {
        return (0..seeds).for_each(|seed| check(plan(seed), seed));
    }
    let end = Instant::now() + Duration::from_secs(variable("SANDLING_SIMULATOR_SECONDS").unwrap_or(5));
    let first = fastrand::u64(..1 << 40);
    (first..).take_while(|_| Instant::now() < end).for_each(|seed| check(plan(seed), seed));
}

#[test]
fn a_thousand_nodes_keep_the_promises() {
    let plan = Plan { nodes: 1000, creates_per_second: 100, faults_per_second: 5, seconds: 30 };
    check(plan, variable("SANDLING_SIMULATOR_SEED").unwrap_or(1));
}

#[test]
fn a_create_costs_as_much_in_a_large_fleet() {
    let file = std::env::var_os("SANDLING_SIMULATOR_COSTS");
    let sizes: &[usize] = if file.is_some() { &[3, 10, 30, 100, 300, 1000] } else { &[3, 30, 300] };
    let costs: Vec<_> = sizes.iter().map(|nodes| (*nodes, costs::of_a_create(*nodes, 1))).collect();
    println!("{costs:?}");
    for (nodes, [reads, transactions, requests]) in &costs {
        assert!(*reads <= 1.5 && *transactions <= 3.0 && *requests <= 4.5, "{nodes} nodes: {costs:?}");
    }
    if let Some(file) = file {
        let line = |(nodes, cost): &(usize, [f64; 3])| {
            let [reads, transactions, requests] = cost;
            let cost = format!(r#""reads": {reads}, "transactions": {transactions}, "requests": {requests}"#);
            format!(r#"{{"nodes": {nodes}, {cost}}}"#)
        };
        fs::write(file, format!("[{}]\n", costs.iter().map(line).collect::<Vec<_>>().join(",\n "))).unwrap();
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let [one, other] = [(), ()].map(|()| run(SMALL, 7, None).digest);
    assert_eq!(one, other);
    assert_ne!(one, run(SMALL, 8, None).digest);
}

/// The first seed that notices the missing fence. One seed in forty notices that of the lease.
fn noticed(mutation: MissingFence) -> Finished {
    let mut runs = (0..400).map(|seed| run(SMALL, seed, Some(mutation)));
    runs.find(|finished| !finished.violations.is_empty()).unwrap_or_else(|| panic!("no seed notices {mutation:?}"))
}

#[test]
fn a_missing_lease_fence_is_noticed() {
    noticed(MissingFence::Lease);
}

#[test]
fn a_claim_that_is_not_unique_is_noticed() {
    let violations = noticed(MissingFence::UniqueClaim).violations;
    assert!(violations.iter().any(|violation| violation.starts_with("ran twice")), "{violations:?}");
}

#[test]
fn a_swap_without_the_revision_is_noticed() {
    noticed(MissingFence::RecordRevision);
}

#[test]
fn a_quota_share_that_is_not_compared_is_noticed() {
    let violations = noticed(MissingFence::QuotaShare).violations;
    assert!(violations.iter().any(|violation| violation.starts_with("quota")), "{violations:?}");
}

#[test]
fn no_sandbox_with_failover_acts_at_two_nodes() {
    let seeds = variable("SANDLING_SIMULATOR_SEED").map_or(0..20, |seed| seed..seed + 1);
    let mut taken_over = 0;
    for seed in seeds {
        let finished = failover::run(seed, None);
        assert!(finished.violations.is_empty(), "seed {seed}: {:#?}", finished.violations);
        taken_over += finished.taken_over;
    }
    assert!(taken_over > 0, "no sandbox was taken over");
}

/// Whether one of some seeds notices the missing fence of failover.
fn failover_notices(mutation: MissingFence) -> bool {
    (0..40).any(|seed| !failover::run(seed, Some(mutation)).violations.is_empty())
}

#[test]
fn an_owner_that_ignores_its_deadline_is_noticed() {
    assert!(failover_notices(MissingFence::OwnDeadline));
}

#[test]
fn a_takeover_from_an_owner_that_has_its_lease_is_noticed() {
    assert!(failover_notices(MissingFence::OwnerGone));
}
