//! What a node remembers while it runs. All of it can be rebuilt from the ledger and the host.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claims::{Identity, Written};
use crate::clock::Clock;
use crate::host::{Ask, Host, Peers, Reply};
use crate::ledger::{Ledger, LedgerError, Revision};
use crate::membership::{LeaseSettings, Membership};
use crate::permits::Permits;
use crate::protocol::Protocol;
use crate::records::{NodeRecord, SandboxRecord};

#[derive(Debug, Clone)]
pub struct Settings {
    pub lease: LeaseSettings,
    pub upkeep_every: Duration,
    /// After this time without a lease and without an answer, a node's sandboxes are lost.
    pub lost_after: Duration,
    pub permits_idle_after: Duration,
    /// How many sandboxes a drain moves in one round of upkeep.
    pub moves_at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: LeaseSettings::default(),
            upkeep_every: Duration::from_secs(5),
            lost_after: Duration::from_secs(60),
            permits_idle_after: Duration::from_secs(10),
            moves_at_once: 8,
        }
    }
}

pub struct Node<L, C, P, H> {
    pub(super) member: Membership<L, C>,
    pub(super) peers: P,
    pub(super) host: H,
    pub(super) settings: Settings,
    pub(super) state: Mutex<State>,
    /// Held while permits change in the ledger, because the order of the answers matters.
    pub(super) permits_turn: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    /// The sandboxes that run here.
    pub rows: BTreeMap<String, Row>,
    pub permits: Permits,
    /// Holders of permits that are no members, and since when the reaper knows.
    pub missing: BTreeMap<String, Duration>,
    pub random: fastrand::Rng,
}

#[derive(Clone)]
pub(super) struct Row {
    pub record: SandboxRecord,
    pub revision: Revision,
}

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    pub fn new(name: &str, hardware: &str, seed: u64, parts: (L, C, P, H), settings: Settings) -> Self {
        let (ledger, clock, peers, host) = parts;
        let state = State {
            rows: BTreeMap::new(),
            permits: Permits::default(),
            missing: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed),
        };
        let about = NodeRecord {
            fingerprint: host.fingerprint(),
            hardware: hardware.to_owned(),
            address: String::new(),
            version: String::new(),
            protocol: Protocol::OWN,
            draining: false,
            unknown: Default::default(),
        };
        let member = Membership::new(name, about, ledger, clock, settings.lease.clone());
        let permits_turn = tokio::sync::Mutex::new(());
        Self { member, peers, host, settings, state: Mutex::new(state), permits_turn }
    }

    /// Runs until the future is dropped.
    pub async fn run(&self) {
        tokio::join!(self.keep_membership(), self.member.watch_members(), self.keep_up());
    }

    /// Answers another node.
    pub async fn answer(&self, ask: Ask) -> Reply {
        match ask {
            Ask::Ping => Reply::Pong,
            Ask::Offer { template } => self.offer(&template),
            Ask::Create(request) => self.create_here(&request).await,
            Ask::Find { key } => self.find(&key).await,
            Ask::Adopt { key, at, record } => self.adopt(&key, at, record).await,
        }
    }

    /// The keys of the sandboxes that run here.
    pub fn sandboxes(&self) -> Vec<String> {
        self.state().rows.keys().cloned().collect()
    }

    async fn keep_membership(&self) {
        loop {
            if let Some(me) = self.member.register_or_wait().await {
                tokio::join!(self.member.renew_until_lost(&me), self.recover_until_done(&me));
            }
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats a write until its outcome is known. `None` if the epoch ended first: then recovery finds out.
    pub(super) async fn settle<F>(&self, me: &Identity, write: impl Fn() -> F) -> Option<Written>
    where
        F: Future<Output = Result<Written, LedgerError>>,
    {
        while self.member.is_current(me) {
            match write().await {
                Ok(written) => return Some(written),
                Err(_) => self.member.clock.sleep(Duration::from_millis(500)).await,
            }
        }
        None
    }
}
