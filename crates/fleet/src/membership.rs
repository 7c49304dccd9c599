//! A node's lease and epoch, and what it knows of the other members.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claims::Identity;
use crate::clock::Clock;
use crate::follow::{Update, follow};
use crate::ledger::{Change, Expect, LeaseId, Ledger, LedgerError, Outcome, Record, Transaction, Write};
use crate::placement::{Member, NodeTable};
use crate::records::{
    DrainProgress, DrainRecord, MACHINES, MOST_MACHINES, MachineRecord, NODES, NodeRecord, REMOVED, decode, drain_key,
    drain_progress_key, encode, machine_key, node_key, removed_key,
};

#[derive(Debug, Clone)]
pub struct LeaseSettings {
    pub ttl: Duration,
    pub renew_every: Duration,
    /// How long after it sent its last confirmed renewal a node still writes. Shorter than the TTL, because clocks drift.
    pub write_within: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        let [ttl, renew_every, write_within] = [10, 3, 8].map(Duration::from_secs);
        Self { ttl, renew_every, write_within }
    }
}

/// The node has not read the list of members since it started.
#[derive(Debug, thiserror::Error)]
#[error("this node does not know the other nodes yet")]
pub struct NoMembersYet;

pub struct Membership<L, C> {
    pub(crate) name: String,
    /// What the node says about itself, but for `draining`.
    about: NodeRecord,
    pub(crate) ledger: L,
    pub(crate) clock: C,
    settings: LeaseSettings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    standing: Option<Standing>,
    table: NodeTable,
    /// Fingerprints of the machines that are excluded. `None` before they are read.
    removed: Option<HashSet<String>>,
    /// What an operator wants, while the node drains.
    drain: Option<DrainRecord>,
    /// Why the node is not a member now, as the log has it.
    problem: Option<String>,
}

impl State {
    fn has_removed(&self, fingerprint: &str) -> bool {
        self.removed.as_ref().is_some_and(|removed| removed.contains(fingerprint))
    }
}

/// What came of an attempt to become a member.
enum Registration {
    Begun(Identity),
    /// Another machine has this name, or took it just now.
    NameTaken,
    Removed,
}

struct Standing {
    me: Identity,
    lease: LeaseId,
    write_until: Duration,
    /// After recovery.
    ready: bool,
}

impl<L: Ledger, C: Clock> Membership<L, C> {
    pub fn new(name: &str, about: NodeRecord, ledger: L, clock: C, settings: LeaseSettings) -> Self {
        Self { name: name.to_owned(), about, ledger, clock, settings, state: Mutex::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// Keeps a node a member that has nothing to recover. Runs until the future is dropped.
    pub async fn keep(&self) {
        let register = async {
            loop {
                if let Some(me) = self.register_or_wait().await {
                    self.set_ready(&me);
                    self.renew_until_lost(&me).await;
                }
            }
        };
        let follow_drain = async {
            loop {
                self.clock.sleep(self.settings.renew_every).await;
                if let Some(me) = self.writer() {
                    // What fails now is tried again in the next round.
                    let _ = self.follow_drain(&me).await;
                }
            }
        };
        tokio::join!(register, follow_drain, self.watch_members());
    }

    /// A new epoch, or nothing after the time of one renewal.
    pub(crate) async fn register_or_wait(&self) -> Option<Identity> {
        let problem = match self.register().await {
            Ok(Registration::Begun(me)) => {
                self.report(None);
                return Some(me);
            }
            Ok(Registration::NameTaken) => format!("another machine is node {}", self.name),
            Ok(Registration::Removed) => {
                "this machine was removed from the fleet, and can only join it anew".to_owned()
            }
            Err(error) => error.to_string(),
        };
        self.report(Some(problem));
        self.clock.sleep(self.settings.renew_every).await;
        None
    }

    /// Logs why the node is not a member, once until that changes.
    fn report(&self, problem: Option<String>) {
        let before = std::mem::replace(&mut self.state().problem, problem.clone());
        match (before, problem) {
            (Some(_), None) => tracing::info!(node = self.name, "the node is a member of its fleet again"),
            (before, Some(problem)) if before.as_ref() != Some(&problem) => {
                tracing::warn!(node = self.name, problem, "the node cannot be a member of its fleet now; it tries on");
            }
            _ => {}
        }
    }

    /// Begins a new epoch.
    async fn register(&self) -> Result<Registration, LedgerError> {
        let key = node_key(&self.name);
        let fingerprint = &self.about.fingerprint;
        if self.ledger.get(&removed_key(fingerprint)).await?.is_some() {
            return Ok(Registration::Removed);
        }
        let machine = self.ledger.get(&machine_key(&self.name)).await?;
        if let Some(machine) = &machine
            && decode::<MachineRecord>(machine)?.fingerprint != *fingerprint
        {
            return Ok(Registration::NameTaken);
        }
        if let Some(found) = self.ledger.get(&key).await? {
            if decode::<NodeRecord>(&found)?.fingerprint != *fingerprint {
                return Ok(Registration::NameTaken);
            }
            let end_epoch = Transaction::default().when(&key, Expect::Modified(found.modified));
            self.ledger.commit(end_epoch.then(Write::Delete { key: key.clone() })).await?;
        }
        let drain = self.wanted_drain().await?;
        let sent = self.clock.now();
        let lease = self.ledger.grant(self.settings.ttl).await?;
        let put = Write::Put { key: key.clone(), value: self.record(drain.is_some()), lease: Some(lease) };
        let begin = self.own_name(machine, Transaction::default().when(&key, Expect::Absent).then(put));
        let Outcome::Committed(epoch) = self.ledger.commit(begin).await? else { return Ok(Registration::NameTaken) };
        let me = Identity { node: self.name.clone(), epoch };
        let write_until = sent + self.settings.write_within;
        let mut state = self.state();
        state.drain = drain;
        state.standing = Some(Standing { me: me.clone(), lease, write_until, ready: false });
        Ok(Registration::Begun(me))
    }

    /// Registers the machine with its name the first time, and otherwise makes sure that nobody has removed it meanwhile.
    fn own_name(&self, machine: Option<Record>, begin: Transaction) -> Transaction {
        let key = machine_key(&self.name);
        match machine {
            Some(machine) => begin.when(key, Expect::Modified(machine.modified)),
            None => {
                let fingerprint = self.about.fingerprint.clone();
                let machine = encode(&MachineRecord { fingerprint, unknown: Default::default() });
                begin.when(&key, Expect::Absent).then(Write::put(key, machine))
            }
        }
    }

    fn record(&self, draining: bool) -> String {
        encode(&NodeRecord { draining, ..self.about.clone() })
    }

    pub(crate) async fn renew_until_lost(&self, me: &Identity) {
        let Some(lease) = self.state().standing.as_ref().map(|standing| standing.lease) else { return };
        while self.is_current(me) {
            self.clock.sleep(self.settings.renew_every).await;
            let sent = self.clock.now();
            match self.renew(lease, me).await {
                Ok(()) => {
                    self.extend(sent + self.settings.write_within);
                    self.report(None);
                }
                Err(LedgerError::LeaseGone) => self.state().standing = None,
                Err(error) => self.report(Some(error.to_string())),
            }
        }
    }

    /// A removal ends the epoch, but not the lease.
    async fn renew(&self, lease: LeaseId, me: &Identity) -> Result<(), LedgerError> {
        self.ledger.renew(lease).await?;
        let found = self.ledger.get(&node_key(&self.name)).await?;
        Expect::Created(me.epoch).holds(found.as_ref()).then_some(()).ok_or(LedgerError::LeaseGone)
    }

    fn extend(&self, write_until: Duration) {
        if let Some(standing) = &mut self.state().standing {
            standing.write_until = standing.write_until.max(write_until);
        }
    }

    pub(crate) fn set_ready(&self, me: &Identity) {
        if let Some(standing) = self.state().standing.as_mut().filter(|standing| standing.me == *me) {
            standing.ready = true;
        }
    }

    /// Who this node is in the ledger, if it may write now.
    pub fn writer(&self) -> Option<Identity> {
        let now = self.clock.now();
        let state = self.state();
        let standing = state.standing.as_ref().filter(|standing| standing.ready && now < standing.write_until);
        standing.map(|standing| standing.me.clone())
    }

    pub(crate) fn is_current(&self, me: &Identity) -> bool {
        self.state().standing.as_ref().is_some_and(|standing| standing.me == *me)
    }

    /// Follows who is a member and who is excluded. Runs until the future is dropped.
    pub(crate) async fn watch_members(&self) {
        let members = self.watch(NODES, |state, update| match update {
            Update::All(records) => state.table.replace(records),
            Update::One(change) => state.table.apply(change),
        });
        let removed = self.watch(REMOVED, |state, update| {
            let fingerprint = |key: &str| key.strip_prefix(REMOVED).unwrap_or(key).to_owned();
            match update {
                Update::All(records) => {
                    state.removed = Some(records.iter().map(|record| fingerprint(&record.key)).collect());
                }
                Update::One(Change::Put(record)) => {
                    state.removed.get_or_insert_default().insert(fingerprint(&record.key));
                }
                Update::One(Change::Deleted { key }) => {
                    state.removed.get_or_insert_default().remove(&fingerprint(&key));
                }
            }
            if state.has_removed(&self.about.fingerprint) {
                state.standing = None;
            }
        });
        tokio::join!(members, removed);
    }

    async fn watch(&self, prefix: &str, apply: impl Fn(&mut State, Update)) {
        loop {
            if follow(&self.ledger, prefix, |update| apply(&mut self.state(), update)).await.is_err() {
                self.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Shows in the node's record what the operator wants.
    pub(crate) async fn follow_drain(&self, me: &Identity) -> Result<(), LedgerError> {
        let wanted = self.wanted_drain().await?;
        if wanted.is_some() == self.is_draining() {
            self.state().drain = wanted;
            return Ok(());
        }
        let put = Write::Put { key: node_key(&self.name), value: self.record(wanted.is_some()), lease: self.lease() };
        if let Outcome::Committed(_) = self.ledger.commit(me.fence(Transaction::default().then(put))).await? {
            self.state().drain = wanted;
        }
        Ok(())
    }

    async fn wanted_drain(&self) -> Result<Option<DrainRecord>, LedgerError> {
        let found = self.ledger.get(&drain_key(&self.name)).await?;
        Ok(found.map(|found| decode(&found).unwrap_or_default()))
    }

    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.state().standing.as_ref().map(|standing| standing.lease)
    }

    pub fn is_draining(&self) -> bool {
        self.drain().is_some()
    }

    /// What an operator wants of this node's drain. `None` if it does not drain.
    pub fn drain(&self) -> Option<DrainRecord> {
        self.state().drain.clone()
    }

    /// Shows how far this node's drain is, until the node has lost its lease.
    pub async fn show_drain(&self, progress: Option<&DrainProgress>) -> Result<(), LedgerError> {
        let Some(me) = self.writer() else { return Ok(()) };
        let key = drain_progress_key(&self.name);
        let write = match progress {
            Some(progress) => Write::Put { key, value: encode(progress), lease: self.lease() },
            None => Write::Delete { key },
        };
        self.ledger.commit(me.fence(Transaction::default().then(write))).await.map(drop)
    }

    /// The members as this node last saw them, by name.
    pub fn members(&self) -> Vec<Member> {
        self.state().table.members().to_vec()
    }

    /// The members, and those that were members since this node started, but for machines that were removed.
    pub fn machines(&self) -> Vec<Member> {
        let state = self.state();
        state.table.known().filter(|member| !state.has_removed(&member.record.fingerprint)).cloned().collect()
    }

    /// Fingerprints of the machines that are excluded, as far as this node knows.
    pub fn removed(&self) -> Vec<String> {
        self.state().removed.iter().flatten().cloned().collect()
    }

    /// A member that does not speak this protocol yet. What needs the protocol must wait until there is none.
    pub fn behind(&self, protocol: u32) -> Option<Arc<str>> {
        let state = self.state();
        let behind = state.table.members().iter().find(|member| member.record.protocol.current < protocol);
        behind.map(|member| member.name.clone())
    }

    /// The node with this tag, also one that is no member now, but not one that was removed. The error says that this node
    /// knows no other yet.
    pub fn by_tag(&self, tag: u32) -> Result<Option<Member>, NoMembersYet> {
        let state = self.state();
        if state.table.is_empty() {
            return Err(NoMembersYet);
        }
        let found = state.table.by_tag(tag).filter(|member| !state.has_removed(&member.record.fingerprint));
        Ok(found.cloned())
    }

    /// Whether the machine with this fingerprint is excluded, as far as this node knows.
    pub fn has_removed(&self, fingerprint: &str) -> bool {
        self.state().has_removed(fingerprint)
    }

    /// Whether this node has read who is excluded, and it is not.
    pub fn belongs(&self) -> bool {
        let state = self.state();
        state.removed.is_some() && !state.has_removed(&self.about.fingerprint)
    }

    /// Whom to ask for a sandbox of a template. In later rounds the preferred ones are the next in order.
    pub fn candidates(&self, template: &str, hardware: &str, round: usize, random: u64) -> Vec<Member> {
        self.state().table.candidates(template, hardware, round, random)
    }

    /// Whether all machines of the fleet are members now.
    pub async fn is_complete(&self) -> Result<bool, LedgerError> {
        let machines = self.ledger.list(MACHINES, None, MOST_MACHINES).await?.records;
        let mut names = machines.iter().map(|machine| machine.key.strip_prefix(MACHINES).unwrap_or(&machine.key));
        Ok(names.all(|name| self.is_member(name)))
    }

    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.state().table.contains(name)
    }

    /// The one member that all nodes with the same table choose for a task.
    pub fn chosen_for(&self, task: &str) -> Option<Arc<str>> {
        self.state().table.chosen_for(task)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::clock::BootClock;
    use crate::ledger::ModelLedger;
    use crate::protocol::Protocol;

    pub(crate) fn member<'a>(name: &str, ledger: &'a ModelLedger) -> Membership<&'a ModelLedger, BootClock> {
        member_on(name, name, ledger)
    }

    pub(crate) fn member_on<'a>(
        fingerprint: &str,
        name: &str,
        ledger: &'a ModelLedger,
    ) -> Membership<&'a ModelLedger, BootClock> {
        let about = NodeRecord {
            fingerprint: fingerprint.to_owned(),
            hardware: String::new(),
            address: String::new(),
            version: String::new(),
            protocol: Protocol::OWN,
            draining: false,
            unknown: Default::default(),
        };
        Membership::new(name, about, ledger, BootClock, LeaseSettings::default())
    }

    pub(crate) async fn register(member: &Membership<&ModelLedger, BootClock>) {
        let me = member.register_or_wait().await.unwrap();
        member.set_ready(&me);
    }
}
