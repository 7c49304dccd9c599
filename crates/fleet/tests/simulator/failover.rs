//! Sandboxes with failover: nodes stop, are cut off, crash and come back, and no sandbox acts at two nodes.
//!
//! A machine acts, i.e. changes something outside of itself, only while its node may run it. After a node has acted as a
//! sandbox's owner, none of its earlier owners may act any more.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sandling_fleet::store::Digest;
use sandling_fleet::{
    Absences, Clock, FailoverPoint, Failovers, Held, KnownFailovers, LeaseSettings, Membership, Moves, NodeRecord,
    Protocol, Settings, SharedRecords, TookOver,
};
use tokio::time::sleep;

use crate::world::{MissingFence, Seat, World, name};

const NODES: usize = 5;
const SANDBOXES: usize = 12;
const HARDWARE: &str = "hardware";

/// What is on a node's disk, and the machines there, which outlive its process.
#[derive(Default)]
struct Disk {
    /// The generations in which this node owns sandboxes.
    machines: BTreeMap<String, u64>,
    /// The tokens of sandboxes that arrive, and their generations.
    arrivals: BTreeMap<String, (String, u64)>,
}

#[derive(Default)]
struct Acts {
    /// The newest owner that has acted.
    newest: BTreeMap<String, (u64, usize)>,
    violations: Vec<String>,
    taken_over: usize,
}

struct Fleet {
    world: Arc<World>,
    disks: Vec<Mutex<Disk>>,
    acts: Mutex<Acts>,
}

pub struct Finished {
    pub violations: Vec<String>,
    pub taken_over: usize,
}

/// One node's process.
struct Process {
    fleet: Arc<Fleet>,
    at: usize,
    seat: Seat,
    membership: Membership<Seat, Seat>,
    shared: SharedRecords,
    moves: Moves,
    known: KnownFailovers,
    held: Mutex<BTreeMap<String, i64>>,
    /// The epoch that a node believes in that does not look at its deadline.
    believed: Mutex<Option<i64>>,
}

impl Process {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.fleet.disks[self.at].lock().unwrap()
    }

    fn failovers(&self) -> Failovers<'_, Seat, Seat> {
        let Self { membership, shared, moves, known, .. } = self;
        Failovers { membership, shared, moves, known }
    }

    /// The epoch in which this node may act.
    fn epoch(&self) -> Option<i64> {
        let epoch = self.membership.writer().map(|me| me.epoch.0);
        let mut believed = self.believed.lock().unwrap();
        *believed = epoch.or(*believed);
        if self.fleet.world.mutation == Some(MissingFence::OwnDeadline) { *believed } else { epoch }
    }

    fn may_run(&self, sandbox: &str) -> bool {
        let held = self.held.lock().unwrap().get(sandbox).copied();
        self.epoch().is_some_and(|epoch| held == Some(epoch))
    }

    async fn run(&self) {
        let failovers = self.failovers();
        tokio::join!(
            self.membership.keep(),
            failovers.follow(),
            self.moves.follow(&self.membership, || ()),
            self.act(),
            self.hold(),
            self.make_points(),
            self.take_over_lost(),
        );
    }

    async fn act(&self) {
        loop {
            self.seat.sleep(Duration::from_millis(50)).await;
            let machines = self.disk().machines.clone();
            for (sandbox, generation) in machines.into_iter().filter(|(sandbox, _)| self.may_run(sandbox)) {
                let mut acts = self.fleet.acts.lock().unwrap();
                let this = (generation, self.at);
                let newest = *acts.newest.get(&sandbox).unwrap_or(&this);
                if newest > this {
                    acts.violations.push(format!("{sandbox} acts as {this:?} after {newest:?}"));
                }
                acts.newest.insert(sandbox, this.max(newest));
            }
        }
    }

    async fn hold(&self) {
        self.finish_arrivals().await;
        loop {
            self.seat.sleep(Duration::from_millis(250)).await;
            let machines = self.disk().machines.clone();
            for sandbox in machines.into_keys().filter(|sandbox| !self.may_run(sandbox)) {
                match self.failovers().hold(&sandbox, None).await {
                    Ok(Held::Mine(record, _)) => {
                        let epoch = record.map_or_else(|| self.epoch(), |record| Some(record.epoch));
                        epoch.map(|epoch| self.held.lock().unwrap().insert(sandbox, epoch));
                    }
                    Ok(Held::Elsewhere(_)) => drop(self.disk().machines.remove(&sandbox)),
                    Ok(Held::Fenced) | Err(_) => {}
                }
            }
        }
    }

    /// What the process before has taken over or not.
    async fn finish_arrivals(&self) {
        let arrivals = self.disk().arrivals.clone();
        for (sandbox, (token, _)) in arrivals {
            loop {
                if self.membership.writer().is_some()
                    && let Ok(found) = self.moves.whereabouts(&self.seat, &sandbox).await
                {
                    let is_ours = found.record.is_some_and(|record| record.token == token);
                    self.finish_arrival(&sandbox, is_ours);
                    break;
                }
                self.seat.sleep(Duration::from_millis(500)).await;
            }
        }
    }

    fn finish_arrival(&self, sandbox: &str, is_ours: bool) {
        let mut disk = self.disk();
        if let Some((_, generation)) = disk.arrivals.remove(sandbox).filter(|_| is_ours) {
            disk.machines.insert(sandbox.to_owned(), generation);
        }
    }

    async fn make_points(&self) {
        for number in 0.. {
            self.seat.sleep(Duration::from_secs(3)).await;
            let machines = self.disk().machines.clone();
            for sandbox in machines.into_keys().filter(|sandbox| self.may_run(sandbox)) {
                let point = FailoverPoint {
                    snapshot: number.to_string(),
                    manifest: Digest::of(b"manifest"),
                    made_on: String::new(),
                    at: String::new(),
                    settings: String::new(),
                };
                // What fails is made later.
                let _ = self.failovers().put_point(&sandbox, "team", point).await;
            }
        }
    }

    async fn take_over_lost(&self) {
        let mut absences = Absences::default();
        loop {
            self.seat.sleep(Duration::from_secs(1)).await;
            let mut due = absences.due(&self.failovers(), HARDWARE);
            if self.fleet.world.below(20) == 0 {
                // One that is not patient has to be refused.
                due = self.known.all();
                due.retain(|(_, record, _)| record.node != name(self.at));
            }
            for (sandbox, record, at) in due.into_iter().take(2) {
                // The files come.
                self.seat.sleep(Duration::from_millis(self.fleet.world.below(8000) as u64)).await;
                if self.disk().machines.contains_key(&sandbox) || self.disk().arrivals.contains_key(&sandbox) {
                    continue;
                }
                let token = self.fleet.world.below(usize::MAX).to_string();
                self.disk().arrivals.insert(sandbox.clone(), (token.clone(), record.generation + 1));
                let took = loop {
                    match self.failovers().take_over(&sandbox, at, &token).await {
                        Ok(TookOver::Mine) => break true,
                        Ok(TookOver::Other) => break false,
                        Ok(TookOver::Fenced) | Err(_) => self.seat.sleep(Duration::from_millis(500)).await,
                    }
                };
                if took {
                    self.fleet.acts.lock().unwrap().taken_over += 1;
                    // As the transaction wrote it, whatever has happened since.
                    let ours = self.known.get(&sandbox).filter(|now| now.generation == record.generation + 1);
                    ours.map(|ours| self.held.lock().unwrap().insert(sandbox.clone(), ours.epoch));
                }
                self.finish_arrival(&sandbox, took);
            }
        }
    }
}

impl Fleet {
    fn start(self: &Arc<Self>, at: usize) {
        let seat = Seat { world: self.world.clone(), at };
        let about = NodeRecord {
            fingerprint: name(at),
            hardware: HARDWARE.to_owned(),
            address: String::new(),
            version: String::new(),
            draining: false,
            protocol: Protocol::OWN,
            unknown: Default::default(),
        };
        let membership = Membership::new(&name(at), about, seat.clone(), seat.clone(), LeaseSettings::default());
        let (shared, moves) = (SharedRecords::new(b"secret"), Moves::new(b"secret"));
        let (known, held, believed) = Default::default();
        let fleet = self.clone();
        let process = Process { fleet, at, seat, membership, shared, moves, known, held, believed };
        self.world.slot(at).tasks.spawn(async move { process.run().await });
    }

    async fn fault(self: Arc<Self>, at: usize) {
        let (world, time) = (&self.world, Duration::from_millis(200 + self.world.below(45_000) as u64));
        match world.below(6) {
            0 | 1 => {
                world.kill(at);
                sleep(time).await;
                if world.slot(at).tasks.is_empty() {
                    self.start(at);
                }
            }
            2 => {
                world.slot(at).pause();
                sleep(time).await;
                world.slot(at).resume();
            }
            3 | 4 => {
                world.slot(at).cut_from_ledger = true;
                sleep(time).await;
                world.slot(at).cut_from_ledger = false;
            }
            _ => {
                world.slot(at).slow = Duration::from_millis(world.below(1500) as u64);
                sleep(time).await;
                world.slot(at).slow = Duration::ZERO;
            }
        }
    }
}

/// Runs a fleet for some minutes of its time.
pub fn run(seed: u64, mutation: Option<MissingFence>) -> Finished {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new(NODES, seed, mutation, Settings::default());
        let disks = (0..NODES).map(|_| Mutex::default()).collect();
        let fleet = Arc::new(Fleet { world, disks, acts: Mutex::default() });
        for number in 0..SANDBOXES {
            fleet.disks[number % NODES].lock().unwrap().machines.insert(format!("sandbox {number}"), 1);
        }
        (0..NODES).for_each(|at| fleet.start(at));
        sleep(Duration::from_secs(10)).await;
        for _ in 0..60 {
            sleep(Duration::from_secs(3)).await;
            tokio::spawn(fleet.clone().fault(fleet.world.below(NODES)));
        }
        sleep(Duration::from_secs(60)).await;
        fleet.world.faulty.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(120)).await;
        let mut acts = fleet.acts.lock().unwrap();
        let owners = |sandbox: &str| {
            fleet.disks.iter().filter(|disk| disk.lock().unwrap().machines.contains_key(sandbox)).count()
        };
        for number in 0..SANDBOXES {
            let sandbox = format!("sandbox {number}");
            let owners = owners(&sandbox);
            if owners != 1 {
                acts.violations.push(format!("{sandbox} is at {owners} nodes in the end"));
            }
        }
        Finished { violations: std::mem::take(&mut acts.violations), taken_over: acts.taken_over }
    })
}
