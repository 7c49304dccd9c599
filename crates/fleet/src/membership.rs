//! A node's lease and epoch, and what it knows of the other members.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::claims::Identity;
use crate::clock::Clock;
use crate::ledger::{Expect, LeaseId, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::placement::{Member, NodeTable};
use crate::records::{NODES, NodeRecord, decode, drain_key, encode, node_key};

const PAGE: usize = 1000;

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
    draining: bool,
    /// Why the node is not a member now, as the log has it.
    problem: Option<String>,
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
            Ok(Some(me)) => {
                self.report(None);
                return Some(me);
            }
            Ok(None) => format!("another machine is node {}", self.name),
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

    /// Begins a new epoch. `None` if another machine has this name, or took it just now.
    async fn register(&self) -> Result<Option<Identity>, LedgerError> {
        let key = node_key(&self.name);
        if let Some(found) = self.ledger.get(&key).await? {
            if decode::<NodeRecord>(&found)?.fingerprint != self.about.fingerprint {
                return Ok(None);
            }
            let end_epoch = Transaction::default().when(&key, Expect::Modified(found.modified));
            self.ledger.commit(end_epoch.then(Write::Delete { key: key.clone() })).await?;
        }
        let draining = self.ledger.get(&drain_key(&self.name)).await?.is_some();
        let sent = self.clock.now();
        let lease = self.ledger.grant(self.settings.ttl).await?;
        let put = Write::Put { key: key.clone(), value: self.record(draining), lease: Some(lease) };
        let outcome = self.ledger.commit(Transaction::default().when(&key, Expect::Absent).then(put)).await?;
        let Outcome::Committed(epoch) = outcome else { return Ok(None) };
        let me = Identity { node: self.name.clone(), epoch };
        let write_until = sent + self.settings.write_within;
        let mut state = self.state();
        state.draining = draining;
        state.standing = Some(Standing { me: me.clone(), lease, write_until, ready: false });
        Ok(Some(me))
    }

    fn record(&self, draining: bool) -> String {
        encode(&NodeRecord { draining, ..self.about.clone() })
    }

    pub(crate) async fn renew_until_lost(&self, me: &Identity) {
        let Some(lease) = self.state().standing.as_ref().map(|standing| standing.lease) else { return };
        while self.is_current(me) {
            self.clock.sleep(self.settings.renew_every).await;
            let sent = self.clock.now();
            match self.ledger.renew(lease).await {
                Ok(()) => {
                    self.extend(sent + self.settings.write_within);
                    self.report(None);
                }
                Err(LedgerError::LeaseGone) => self.state().standing = None,
                Err(error) => self.report(Some(error.to_string())),
            }
        }
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

    pub(crate) async fn watch_members(&self) {
        loop {
            if self.follow_members().await.is_err() {
                self.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    async fn follow_members(&self) -> Result<(), LedgerError> {
        let mut page = self.ledger.list(NODES, None, PAGE).await?;
        let mut after = page.revision;
        let mut records = std::mem::take(&mut page.records);
        while let Some(last) = records.last().filter(|_| records.len() % PAGE == 0) {
            let page = self.ledger.list(NODES, Some(&last.key.clone()), PAGE).await?;
            if page.records.is_empty() {
                break;
            }
            records.extend(page.records);
        }
        self.state().table.replace(records);
        loop {
            let changes = self.ledger.changes(NODES, after).await?;
            after = changes.until;
            let mut state = self.state();
            changes.changes.into_iter().for_each(|change| state.table.apply(change));
        }
    }

    /// Shows in the node's record what the operator wants.
    pub(crate) async fn follow_drain(&self, me: &Identity) -> Result<(), LedgerError> {
        let wanted = self.ledger.get(&drain_key(&self.name)).await?.is_some();
        let lease: Option<LeaseId> = self.state().standing.as_ref().map(|standing| standing.lease);
        if wanted != self.is_draining() {
            let put = Write::Put { key: node_key(&self.name), value: self.record(wanted), lease };
            if let Outcome::Committed(_) = self.ledger.commit(me.fence(Transaction::default().then(put))).await? {
                self.state().draining = wanted;
            }
        }
        Ok(())
    }

    pub fn is_draining(&self) -> bool {
        self.state().draining
    }

    /// The members as this node last saw them, by name.
    pub fn members(&self) -> Vec<Member> {
        self.state().table.members().to_vec()
    }

    /// The node with this tag, also one that is no member now. The error says that this node knows no other yet.
    pub fn by_tag(&self, tag: u32) -> Result<Option<Member>, NoMembersYet> {
        let state = self.state();
        if state.table.is_empty() { Err(NoMembersYet) } else { Ok(state.table.by_tag(tag).cloned()) }
    }

    /// Whom to ask for a sandbox of a template. In later rounds the preferred ones are the next in order.
    pub fn candidates(&self, template: &str, hardware: &str, round: usize, random: u64) -> Vec<Member> {
        self.state().table.candidates(template, hardware, round, random)
    }

    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.state().table.contains(name)
    }

    /// The one member that all nodes with the same table choose for a task.
    pub(crate) fn chosen_for(&self, task: &str) -> Option<Arc<str>> {
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

    pub(crate) fn member<'a>(name: &str, ledger: &'a ModelLedger) -> Membership<&'a ModelLedger, BootClock> {
        let about = NodeRecord {
            fingerprint: name.to_owned(),
            hardware: String::new(),
            address: String::new(),
            version: String::new(),
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
