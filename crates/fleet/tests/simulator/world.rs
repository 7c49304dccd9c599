//! The simulated world: a network with faults around one model of the ledger, and hosts that only pretend.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sandling_fleet::{
    Ask, Changes, Clock, Condition, Expect, Host, Known, LeaseId, Ledger, LedgerError, ModelLedger, Node, Outcome,
    Page, Peers, Presence, Record, Reply, Revision, Settings, Transaction, Unreachable,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::checks::Checks;

pub type SimNode = Node<Seat, Seat, Seat, Seat>;

/// What the ledger forgets to compare, in a test of the simulator itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingFence {
    Lease,
    UniqueClaim,
    RecordRevision,
    QuotaShare,
    /// A sandbox is taken over although its owner has its lease.
    OwnerGone,
    /// An owner does not look at its own deadline. The ledger compares everything.
    OwnDeadline,
}

impl MissingFence {
    fn drops(self, condition: &Condition) -> bool {
        let key = condition.key.as_str();
        match self {
            Self::Lease => key.starts_with("node/") && matches!(condition.expect, Expect::Created(_)),
            Self::UniqueClaim => key.starts_with("sb/") && condition.expect == Expect::Absent,
            Self::RecordRevision => key.starts_with("sb/") && matches!(condition.expect, Expect::Modified(_)),
            Self::QuotaShare => key.starts_with("quota/"),
            Self::OwnerGone => matches!(condition.expect, Expect::NotCreated(_)),
            Self::OwnDeadline => false,
        }
    }
}

pub struct World {
    pub ledger: ModelLedger,
    pub mutation: Option<MissingFence>,
    pub settings: Settings,
    pub random: Mutex<fastrand::Rng>,
    pub checks: Mutex<Checks>,
    pub slots: Vec<Mutex<Slot>>,
    pub faulty: AtomicBool,
    pub calls: Calls,
    started: Instant,
}

/// What nodes have asked of others, apart from leases and changes, which are streams of a real ledger.
#[derive(Default)]
pub struct Calls {
    reads: AtomicU64,
    transactions: AtomicU64,
    requests: AtomicU64,
}

impl Calls {
    /// Reads and transactions of the ledger, and requests to other nodes.
    pub fn counted(&self) -> [u64; 3] {
        [&self.reads, &self.transactions, &self.requests].map(|count| count.load(Ordering::Relaxed))
    }
}

/// One machine of the fleet and the process on it.
pub struct Slot {
    pub node: Option<Arc<SimNode>>,
    pub tasks: JoinSet<()>,
    paused: bool,
    resumed: Arc<Notify>,
    pub cut_from_ledger: bool,
    pub cut_from_peers: bool,
    pub slow: Duration,
    clock_rate: f64,
    pub clock_ahead: Duration,
    machines: BTreeMap<(String, u32), Presence>,
}

/// A node's view of the world: its ledger, clock, network and host.
#[derive(Clone)]
pub struct Seat {
    pub world: Arc<World>,
    pub at: usize,
}

impl Slot {
    pub fn pause(&mut self) {
        self.paused = true;
    }

    pub fn resume(&mut self) {
        self.paused = false;
        self.resumed.notify_waiters();
    }
}

pub fn name(at: usize) -> String {
    format!("n{at:04}")
}

impl World {
    pub fn new(nodes: usize, seed: u64, mutation: Option<MissingFence>, settings: Settings) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let slot = |random: &mut fastrand::Rng| Slot {
            node: None,
            tasks: JoinSet::new(),
            paused: false,
            resumed: Arc::default(),
            cut_from_ledger: false,
            cut_from_peers: false,
            slow: Duration::ZERO,
            clock_rate: 0.95 + random.f64() * 0.1,
            clock_ahead: Duration::from_secs(random.u64(1..1_000_000)),
            machines: BTreeMap::new(),
        };
        let slots = (0..nodes).map(|_| Mutex::new(slot(&mut random))).collect();
        Arc::new(Self {
            ledger: ModelLedger::default(),
            mutation,
            settings,
            random: Mutex::new(random),
            checks: Mutex::default(),
            slots,
            faulty: true.into(),
            calls: Calls::default(),
            started: Instant::now(),
        })
    }

    pub fn slot(&self, at: usize) -> MutexGuard<'_, Slot> {
        self.slots[at].lock().unwrap()
    }

    pub fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap()
    }

    pub fn below(&self, end: usize) -> usize {
        self.random.lock().unwrap().usize(..end)
    }

    fn happens(&self, percent: f64) -> bool {
        let faulty = self.faulty.load(Ordering::Relaxed);
        self.random.lock().unwrap().f64() * 100.0 < percent && faulty
    }

    pub fn start(self: &Arc<Self>, at: usize) {
        let seed = self.random.lock().unwrap().u64(..);
        let seat = Seat { world: self.clone(), at };
        let parts = (seat.clone(), seat.clone(), seat.clone(), seat);
        let node = Arc::new(Node::new(&name(at), "hardware", seed, parts, self.settings.clone()));
        let mut slot = self.slot(at);
        slot.node = Some(node.clone());
        slot.tasks.spawn(async move { node.run().await });
    }

    /// Ends the node's process. Its machines go on.
    pub fn kill(&self, at: usize) {
        let mut slot = self.slot(at);
        slot.node = None;
        slot.tasks = JoinSet::new();
        slot.resume();
    }

    /// Ends the machines too. Notes are on the disk and stay.
    pub fn crash(&self, at: usize) {
        self.kill(at);
        for ((key, generation), presence) in &mut self.slot(at).machines {
            if *presence == Presence::Machine {
                self.checks().stopped(key, at, *generation);
                *presence = Presence::Noted;
            }
        }
    }

    pub fn machines(&self, at: usize) -> BTreeMap<(String, u32), Presence> {
        self.slot(at).machines.clone()
    }

    /// What arrives at the ledger happens, even if its sender is dead by then.
    async fn apply(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        let all = transaction.conditions.clone();
        let mut checked = transaction;
        if let Some(mutation) = self.mutation {
            checked.conditions.retain(|condition| !mutation.drops(condition));
        }
        let writes = checked.writes.clone();
        match self.ledger.commit(checked).await? {
            Outcome::Committed(revision) => {
                self.checks().committed(&writes);
                Ok(Outcome::Committed(revision))
            }
            Outcome::Refused(_) => {
                let mut current = Vec::new();
                for condition in &all {
                    current.push(self.ledger.get(&condition.key).await?);
                }
                Ok(Outcome::Refused(current))
            }
        }
    }
}

impl Seat {
    /// Waits while the process is stopped.
    async fn gate(&self) {
        let resumed = self.world.slot(self.at).resumed.clone();
        loop {
            let resumed = resumed.notified();
            if !self.world.slot(self.at).paused {
                return;
            }
            resumed.await;
        }
    }

    fn latency(&self) -> Duration {
        let slow = self.world.slot(self.at).slow;
        Duration::from_micros(300 + self.world.below(2000) as u64)
            + slow.mul_f64(self.world.random.lock().unwrap().f64())
    }

    async fn to_ledger<T>(&self, operation: impl Future<Output = Result<T, LedgerError>>) -> Result<T, LedgerError> {
        self.gate().await;
        let lost = LedgerError::Unavailable("simulated".to_owned());
        sleep(self.latency()).await;
        if self.world.slot(self.at).cut_from_ledger || self.world.happens(0.5) {
            sleep(Duration::from_secs(1)).await;
            self.gate().await;
            return Err(lost);
        }
        let result = operation.await;
        sleep(self.latency()).await;
        let lost_answer = self.world.slot(self.at).cut_from_ledger || self.world.happens(0.5);
        self.gate().await;
        if lost_answer { Err(lost) } else { result }
    }
}

impl Ledger for Seat {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LedgerError> {
        self.to_ledger(self.world.ledger.grant(ttl)).await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.to_ledger(self.world.ledger.renew(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.to_ledger(self.world.ledger.revoke(lease)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        self.world.calls.transactions.fetch_add(1, Ordering::Relaxed);
        self.gate().await;
        let delays = [Some(self.latency()), self.world.happens(1.0).then(|| self.latency() * 50)];
        let late = self.world.happens(0.3).then(|| Duration::from_secs(self.world.below(30) as u64));
        let lost = self.world.slot(self.at).cut_from_ledger || self.world.happens(0.5);
        let mut answer = None;
        for delay in delays.into_iter().flatten().filter(|_| !lost) {
            let (send, receive) = oneshot::channel();
            let (world, transaction) = (self.world.clone(), transaction.clone());
            tokio::spawn(async move {
                sleep(delay + late.unwrap_or_default()).await;
                let _ = send.send(world.apply(transaction).await);
            });
            answer.get_or_insert(receive);
        }
        let answer = async { answer?.await.ok() };
        let result = timeout(Duration::from_secs(1), answer).await.ok().flatten();
        let lost_answer = self.world.slot(self.at).cut_from_ledger || self.world.happens(0.5);
        self.gate().await;
        result.filter(|_| !lost_answer).unwrap_or_else(|| Err(LedgerError::Unavailable("simulated".to_owned())))
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        self.world.calls.reads.fetch_add(1, Ordering::Relaxed);
        self.to_ledger(self.world.ledger.get(key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        self.world.calls.reads.fetch_add(1, Ordering::Relaxed);
        self.to_ledger(self.world.ledger.list(prefix, after, limit)).await
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, LedgerError> {
        self.to_ledger(self.world.ledger.changes(prefix, after)).await
    }

    async fn compact(&self, until: Revision) -> Result<(), LedgerError> {
        self.to_ledger(self.world.ledger.compact(until)).await
    }
}

impl Clock for Seat {
    fn now(&self) -> Duration {
        let slot = self.world.slot(self.at);
        slot.clock_ahead + self.world.started.elapsed().mul_f64(slot.clock_rate)
    }

    async fn sleep(&self, time: Duration) {
        let rate = self.world.slot(self.at).clock_rate;
        sleep(time.div_f64(rate)).await;
        self.gate().await;
    }
}

impl Peers for Seat {
    async fn ask(&self, node: &str, ask: Ask) -> Result<Reply, Unreachable> {
        self.gate().await;
        let to: usize = node[1..].parse().unwrap();
        self.world.calls.requests.fetch_add(u64::from(to != self.at), Ordering::Relaxed);
        let within = Duration::from_secs(if matches!(ask, Ask::Offer { .. } | Ask::Ping) { 1 } else { 10 });
        sleep(self.latency()).await;
        let cut = |at| self.world.slot(at).cut_from_peers;
        let copies = if self.world.happens(1.0) { 2 } else { 1 };
        let mut answer = None;
        if to == self.at || !(cut(to) || cut(self.at) || self.world.happens(0.5)) {
            for _ in 0..copies {
                let (send, receive) = oneshot::channel();
                answer.get_or_insert(receive);
                let seat = Seat { world: self.world.clone(), at: to };
                let ask = ask.clone();
                let mut slot = self.world.slot(to);
                while slot.tasks.try_join_next().is_some() {}
                let Some(node) = slot.node.clone() else { continue };
                slot.tasks.spawn(async move {
                    seat.gate().await;
                    let _ = send.send(node.answer(ask).await);
                });
            }
        }
        let answer = async { answer?.await.ok() };
        let reply = timeout(within, answer).await.ok().flatten();
        sleep(self.latency()).await;
        self.gate().await;
        reply.filter(|_| to == self.at || !(cut(to) || cut(self.at) || self.world.happens(0.5))).ok_or(Unreachable)
    }
}

impl Host for Seat {
    fn fingerprint(&self) -> String {
        format!("machine {}", self.at)
    }

    fn note(&self, key: &str, generation: u32) {
        self.world.slot(self.at).machines.entry((key.to_owned(), generation)).or_insert(Presence::Noted);
    }

    async fn start(&self, key: &str, generation: u32) -> bool {
        sleep(self.latency() * 20).await;
        self.gate().await;
        let starts = !self.world.happens(1.0);
        let mut slot = self.world.slot(self.at);
        let noted = slot.machines.get_mut(&(key.to_owned(), generation)).filter(|_| starts);
        noted.map(|presence| *presence = Presence::Machine).is_some()
    }

    fn release(&self, key: &str, generation: u32) {
        if let Some(presence) = self.world.slot(self.at).machines.get_mut(&(key.to_owned(), generation)) {
            let fresh = *presence == Presence::Machine;
            *presence = Presence::Machine;
            self.world.checks().released(key, self.at, generation, fresh);
        }
    }

    fn hibernate(&self, key: &str, generation: u32) {
        self.world.checks().stopped(key, self.at, generation);
        self.world.slot(self.at).machines.insert((key.to_owned(), generation), Presence::Hibernated);
    }

    fn receive(&self, key: &str, generation: u32) {
        self.world.slot(self.at).machines.insert((key.to_owned(), generation), Presence::Hibernated);
    }

    fn stop(&self, key: &str, generation: u32) {
        self.world.checks().stopped(key, self.at, generation);
        self.world.slot(self.at).machines.insert((key.to_owned(), generation), Presence::Noted);
    }

    fn discard(&self, key: &str, generation: u32) {
        self.world.checks().stopped(key, self.at, generation);
        self.world.slot(self.at).machines.remove(&(key.to_owned(), generation));
    }

    fn known(&self) -> Vec<Known> {
        let machines = self.world.machines(self.at).into_iter();
        machines.map(|((key, generation), presence)| Known { key, generation, presence }).collect()
    }

    fn cost(&self, _template: &str) -> Option<u32> {
        Some(self.world.slot(self.at).machines.len() as u32)
    }
}
