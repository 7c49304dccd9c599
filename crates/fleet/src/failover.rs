//! Which node may run a sandbox with failover, and the point from which another node takes it over.
//!
//! The owner moves a sandbox's record forward with each point. While the owner has its lease, nobody else writes the record.
//! When the owner's epoch is over, another node takes the sandbox over with one transaction, which also writes where the
//! sandbox is now. The owner runs the sandbox only in the epoch that its record names, so it asks with
//! [`hold`](Failovers::hold) before it goes on in a new epoch, and learns there that another node has taken over.
//!
//! All nodes follow the records. They carry a proof that only a node can make.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::claims::Identity;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::follow::{Update, follow};
use crate::ledger::{
    Change, Expect, Ledger, LedgerError, Outcome, Record, Revision, Transaction, Write, is_of_same_engine,
};
use crate::membership::Membership;
use crate::moves::{Moves, Whereabouts};
use crate::records::{encode, machine_key, moved_key, node_key, node_tag};
use crate::shared::{SharedRecords, unproven};

pub(crate) const FAILOVERS: &str = "failover/";
const PAGE: usize = 500;
const VERSION: u32 = 1;
/// How long a node waits after it has seen that an owner has no lease. The owner has stopped the sandbox long before.
const GRACE: Duration = Duration::from_secs(5);
/// The same for an owner that was removed from the fleet. Its lease may have been valid then, and it may not know yet.
const GRACE_AFTER_REMOVAL: Duration = Duration::from_secs(12);
/// How much longer each node waits than the one that is preferred to it.
const LATER: Duration = Duration::from_secs(15);

/// `failover/<sandbox>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailoverRecord {
    pub version: u32,
    /// The owner.
    pub node: String,
    /// The owner's epoch in which it may run the sandbox.
    pub epoch: i64,
    /// Grows with each owner.
    pub generation: u64,
    pub workspace: String,
    pub point: FailoverPoint,
    /// What later versions add.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What another node would go back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverPoint {
    pub snapshot: String,
    /// It names the snapshot's files, and the sandbox's description among them.
    pub manifest: Digest,
    /// What a host must have to restore it: the fingerprint of the host that made it.
    pub made_on: String,
    /// When it was made, in RFC 3339.
    pub at: String,
    /// A digest of the settings that the description has.
    #[serde(default)]
    pub settings: String,
}

/// How often a sandbox has changed its node, as its two records count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    owner: u64,
    place: u64,
}

impl Turns {
    fn is_after(self, last: Self) -> bool {
        self.owner > last.owner || self.place > last.place
    }
}

/// Whether a node may run a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// In this epoch. Without a record there is no point yet, and no other node can take over.
    Mine(Option<Box<FailoverRecord>>, Turns),
    /// This node has it.
    Elsewhere(String),
    /// This node has lost its lease.
    Fenced,
}

/// What came of taking a sandbox over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TookOver {
    Mine,
    /// Its owner has it, or another node was faster.
    Other,
    Fenced,
}

/// The records as a node knows them.
#[derive(Default)]
pub struct KnownFailovers(Mutex<Option<Known>>);

type Known = BTreeMap<String, (FailoverRecord, Revision)>;

impl KnownFailovers {
    pub fn get(&self, sandbox: &str) -> Option<FailoverRecord> {
        Some(self.known().as_ref()?.get(sandbox)?.0.clone())
    }

    pub fn is_read(&self) -> bool {
        self.known().is_some()
    }

    /// Nothing before they are read.
    pub fn all(&self) -> Vec<(String, FailoverRecord, Revision)> {
        let known = self.known();
        let all = known.iter().flatten();
        all.map(|(sandbox, (record, at))| (sandbox.clone(), record.clone(), *at)).collect()
    }

    /// All records, with their keys, as they are in the ledger.
    pub fn records(&self, shared: &SharedRecords) -> Vec<(String, String)> {
        let proven = |(sandbox, record, _): (String, FailoverRecord, Revision)| {
            let key = key(&sandbox);
            let value = shared.prove(&key, &encode(&record));
            (key, value)
        };
        self.all().into_iter().map(proven).collect()
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this node has written or read itself may be newer than what it follows.
    fn learn(&self, sandbox: &str, record: &FailoverRecord, at: Revision) {
        if let Some(known) = self.known().as_mut()
            && known.get(sandbox).is_none_or(|(_, old)| *old < at)
        {
            known.insert(sandbox.to_owned(), (record.clone(), at));
        }
    }

    fn forget(&self, sandbox: &str) {
        if let Some(known) = self.known().as_mut() {
            known.remove(sandbox);
        }
    }
}

/// The records of a fleet, as one node reads and writes them.
pub struct Failovers<'a, L, C> {
    pub membership: &'a Membership<L, C>,
    pub shared: &'a SharedRecords,
    pub moves: &'a Moves,
    pub known: &'a KnownFailovers,
}

/// What the ledger says about a sandbox at one moment.
struct Found {
    record: Option<FailoverRecord>,
    at: Option<Revision>,
    place: Whereabouts,
}

impl Found {
    /// A write on the condition that nothing of this has changed.
    fn unchanged(&self, sandbox: &str) -> Transaction {
        let expect = |at: Option<Revision>| at.map_or(Expect::Absent, Expect::Modified);
        Transaction::default().when(key(sandbox), expect(self.at)).when(moved_key(sandbox), expect(self.place.at))
    }

    fn turns(&self) -> Turns {
        Turns {
            owner: self.record.as_ref().map_or(0, |record| record.generation),
            place: self.place.record.as_ref().map_or(0, |moved| moved.generation),
        }
    }

    /// The other node that has the sandbox. One that has never moved is where its record says.
    fn elsewhere(&self, me: &Identity) -> Option<String> {
        let moved = self.place.record.as_ref().map(|moved| &moved.node);
        let node = moved.or(self.record.as_ref().map(|record| &record.node))?;
        (*node != me.node).then(|| node.clone())
    }
}

impl<L: Ledger, C: Clock> Failovers<'_, L, C> {
    /// Follows the records. Runs until the future is dropped.
    pub async fn follow(&self) {
        loop {
            let followed = follow(self.membership.ledger(), FAILOVERS, |update| match update {
                Update::All(records) => {
                    let read = records.iter().filter_map(|record| {
                        let read = read(self.shared, record).ok()??;
                        Some((name(&record.key).to_owned(), (read, record.modified)))
                    });
                    *self.known.known() = Some(read.collect());
                }
                Update::One(Change::Put(record)) => match read(self.shared, &record) {
                    Ok(Some(read)) => self.known.learn(name(&record.key), &read, record.modified),
                    _ => self.known.forget(name(&record.key)),
                },
                Update::One(Change::Deleted { key }) => self.known.forget(name(&key)),
            });
            if followed.await.is_err() {
                self.membership.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Whether this node, which has the sandbox's machine or its row, may run it in its epoch. After an error the caller asks
    /// again. `last` is what this process was told when it held the sandbox before.
    pub async fn hold(&self, sandbox: &str, last: Option<Turns>) -> Result<Held, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(Held::Fenced) };
        let found = self.find(sandbox).await?;
        let turns = found.turns();
        if let Some(node) = found.elsewhere(&me) {
            return match last.filter(|last| !turns.is_after(*last)) {
                Some(last) => self.reclaim(&me, &found, sandbox, last).await,
                None => Ok(Held::Elsewhere(node)),
            };
        }
        let Some(record) = found.record.clone() else { return Ok(Held::Mine(None, turns)) };
        if record.node == me.node && record.epoch == me.epoch.0 {
            return Ok(Held::Mine(Some(Box::new(record)), turns));
        }
        let generation = record.generation + u64::from(record.node != me.node);
        let ours = FailoverRecord { node: me.node.clone(), epoch: me.epoch.0, generation, ..record };
        match self.write(&me, &found, sandbox, &ours).await? {
            true => Ok(Held::Mine(Some(Box::new(ours)), Turns { owner: generation, ..turns })),
            false => Err(changed()),
        }
    }

    /// An etcd that was restored from a copy says who had the sandbox before this node. The point of that time goes, so that
    /// a new one is made.
    async fn reclaim(&self, me: &Identity, found: &Found, sandbox: &str, last: Turns) -> Result<Held, LedgerError> {
        let place = found.turns().place.max(last.place) + 1;
        let token = format!("reclaimed by {} in {}", me.node, me.epoch.0);
        let moved = self.moves.record(sandbox, &me.node, place, &token);
        let reclaim = found
            .unchanged(sandbox)
            .then(Write::Delete { key: key(sandbox) })
            .then(Write::put(moved_key(sandbox), encode(&moved)));
        match self.membership.ledger().commit(me.fence(reclaim)).await? {
            Outcome::Committed(_) => {
                self.moves.learn(sandbox.to_owned(), moved);
                self.known.forget(sandbox);
                Ok(Held::Mine(None, Turns { owner: 0, place }))
            }
            Outcome::Refused(_) => Err(changed()),
        }
    }

    /// Moves the sandbox's record to a new point. False if this node does not hold the sandbox in its epoch.
    pub async fn put_point(&self, sandbox: &str, workspace: &str, point: FailoverPoint) -> Result<bool, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(false) };
        let found = self.find(sandbox).await?;
        let held = found.record.as_ref().is_none_or(|record| record.node == me.node && record.epoch == me.epoch.0);
        if !held || found.elsewhere(&me).is_some() {
            return Ok(false);
        }
        let record = match found.record.clone() {
            Some(record) => FailoverRecord { point, ..record },
            None => FailoverRecord {
                version: VERSION,
                node: me.node.clone(),
                epoch: me.epoch.0,
                generation: found.turns().place + 1,
                workspace: workspace.to_owned(),
                point,
                unknown: Map::new(),
            },
        };
        self.write(&me, &found, sandbox, &record).await
    }

    /// Becomes the owner of a sandbox whose owner's epoch is over, and the node that has it. The record must be at this
    /// revision. After an error the outcome is unknown: then the caller asks again with the same token.
    pub async fn take_over(&self, sandbox: &str, at: Revision, token: &str) -> Result<TookOver, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(TookOver::Fenced) };
        let found = self.find(sandbox).await?;
        if found.place.record.as_ref().is_some_and(|moved| moved.node == me.node && moved.token == token) {
            return Ok(TookOver::Mine);
        }
        let Some(old) = found.record.clone().filter(|_| found.at == Some(at)) else { return Ok(TookOver::Other) };
        // It has moved, and its new owner has not written the record yet.
        if found.place.record.as_ref().is_some_and(|moved| moved.node != old.node) {
            return Ok(TookOver::Other);
        }
        let ours =
            FailoverRecord { node: me.node.clone(), epoch: me.epoch.0, generation: old.generation + 1, ..old.clone() };
        let generation = found.place.record.as_ref().map_or(0, |moved| moved.generation) + 1;
        let moved = self.moves.record(sandbox, &me.node, generation, token);
        let mut take = found.unchanged(sandbox).when(node_key(&old.node), Expect::NotCreated(Revision(old.epoch)));
        if !is_of_same_engine(Revision(old.epoch), Revision(me.epoch.0)) {
            // It may still have a lease of the etcd before. One that was removed is cut off from the store.
            take = take.when(machine_key(&old.node), Expect::Absent);
        }
        let take = take.then(self.proven(sandbox, &ours)).then(Write::put(moved_key(sandbox), encode(&moved)));
        match self.membership.ledger().commit(me.fence(take)).await? {
            Outcome::Committed(revision) => {
                self.moves.learn(sandbox.to_owned(), moved);
                self.known.learn(sandbox, &ours, revision);
                Ok(TookOver::Mine)
            }
            Outcome::Refused(_) => Ok(TookOver::Other),
        }
    }

    /// Removes the record of a sandbox that has ended here. One that another node has stays. False if that has to be tried
    /// again.
    pub async fn forget(&self, sandbox: &str) -> Result<bool, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(false) };
        let found = self.find(sandbox).await?;
        if found.record.as_ref().is_none_or(|record| record.node != me.node) || found.elsewhere(&me).is_some() {
            return Ok(true);
        }
        let forget = found.unchanged(sandbox).then(Write::Delete { key: key(sandbox) });
        let outcome = self.membership.ledger().commit(me.fence(forget)).await?;
        let is_done = matches!(outcome, Outcome::Committed(_));
        if is_done {
            self.known.forget(sandbox);
        }
        Ok(is_done)
    }

    async fn write(
        &self,
        me: &Identity,
        found: &Found,
        sandbox: &str,
        record: &FailoverRecord,
    ) -> Result<bool, LedgerError> {
        let write = found.unchanged(sandbox).then(self.proven(sandbox, record));
        let outcome = self.membership.ledger().commit(me.fence(write)).await?;
        if let Outcome::Committed(revision) = outcome {
            self.known.learn(sandbox, record, revision);
        }
        Ok(matches!(outcome, Outcome::Committed(_)))
    }

    async fn find(&self, sandbox: &str) -> Result<Found, LedgerError> {
        let found = self.membership.ledger().get(&key(sandbox)).await?;
        let record = found.as_ref().map_or(Ok(None), |found| read(self.shared, found))?;
        if found.is_some() && record.is_none() {
            return Err(LedgerError::Unexpected(format!("no node has written {}", key(sandbox))));
        }
        let place = self.moves.whereabouts(self.membership.ledger(), sandbox).await?;
        Ok(Found { record, at: found.map(|found| found.modified), place })
    }

    fn proven(&self, sandbox: &str, record: &FailoverRecord) -> Write {
        let key = key(sandbox);
        let value = self.shared.prove(&key, &encode(record));
        Write::put(key, value)
    }
}

/// Since when owners have no lease, as one node sees it.
#[derive(Default)]
pub struct Absences(HashMap<String, Duration>);

impl Absences {
    /// The sandboxes that this node should take over now. The others do so later if it does not.
    pub fn due<L: Ledger, C: Clock>(
        &mut self,
        failovers: &Failovers<'_, L, C>,
        hardware: &str,
    ) -> Vec<(String, FailoverRecord, Revision)> {
        let membership = failovers.membership;
        let (now, members) = (membership.clock.now(), membership.members());
        let (mut lost, mut due) = (HashMap::new(), Vec::new());
        // A node that has lost its lease does not know who else has.
        if let Some(me) = membership.writer() {
            for (sandbox, record, at) in failovers.known.all() {
                let is_removed = matches!(membership.by_tag(node_tag(&record.node)), Ok(None));
                // After a rebuild, the owner may still have a lease of the etcd before.
                let is_of_another = !is_of_same_engine(Revision(record.epoch), Revision(me.epoch.0));
                if membership.is_member(&record.node) || is_of_another && !is_removed {
                    continue;
                }
                let since = *self.0.get(&record.node).unwrap_or(&now);
                lost.insert(record.node.clone(), since);
                let takers =
                    members.iter().filter(|member| !member.record.draining && member.record.hardware == hardware);
                let before = takers
                    .clone()
                    .filter(|member| preference(&sandbox, &member.name) > preference(&sandbox, membership.name()));
                let grace = if is_removed { GRACE_AFTER_REMOVAL } else { GRACE };
                let wait = grace + LATER * u32::try_from(before.count()).unwrap_or(u32::MAX).min(1000);
                if takers.into_iter().any(|member| *member.name == *membership.name()) && now >= since + wait {
                    due.push((sandbox, record, at));
                }
            }
        }
        self.0 = lost;
        due
    }
}

/// The same at every node, and independent between sandboxes.
fn preference(sandbox: &str, node: &str) -> [u8; 32] {
    *blake3::hash(format!("{sandbox} {node}").as_bytes()).as_bytes()
}

/// The manifests of all points, with their workspaces. A record that cannot be read is an error: its files must stay.
pub(crate) async fn manifests(
    ledger: &impl Ledger,
    shared: &SharedRecords,
) -> Result<Vec<(String, Digest)>, LedgerError> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = ledger.list(FAILOVERS, after.as_deref(), PAGE).await?;
        for record in &page.records {
            all.extend(read(shared, record)?.map(|read| (read.workspace, read.point.manifest)));
        }
        match page.records.last() {
            Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
            _ => return Ok(all),
        }
    }
}

/// Nothing if no node has written it. What a newer node has written is an error.
fn read(shared: &SharedRecords, record: &Record) -> Result<Option<FailoverRecord>, LedgerError> {
    let Some(body) = shared.proven(record) else { return Ok(None) };
    let read = serde_json::from_str(&body).ok().filter(|record: &FailoverRecord| record.version == VERSION);
    let newer =
        || LedgerError::Unexpected(format!("the record {} is of a newer version; update this node", record.key));
    read.ok_or_else(newer).map(Some)
}

/// The later of two values of one record is the larger one.
pub(crate) fn age(value: &str) -> Option<(u64, String)> {
    let record: FailoverRecord = serde_json::from_str(&unproven(value)?).ok()?;
    Some((record.generation, record.point.at))
}

fn changed() -> LedgerError {
    LedgerError::Unavailable("the record has changed, or this node has lost its lease".to_owned())
}

fn key(sandbox: &str) -> String {
    format!("{FAILOVERS}{sandbox}")
}

fn name(key: &str) -> &str {
    key.strip_prefix(FAILOVERS).unwrap_or(key)
}

#[cfg(test)]
mod tests;
