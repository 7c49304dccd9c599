//! Which node has a sandbox that has moved.
//!
//! A move ends with one write to the ledger, on the condition that the sandbox's record is still as it was when the move
//! began. The target writes when it holds everything. If the source takes the sandbox back, it writes under the same
//! condition. So one of the two gets the sandbox, and the other one learns that from the refusal, however late its write is.
//!
//! All nodes follow the records, which change only with moves. They carry a proof that only a node can make.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::follow::{Update, follow};
use crate::ledger::{Change, Expect, Ledger, LedgerError, Outcome, Record, Revision, Transaction, Write};
use crate::membership::Membership;
use crate::records::{MOVED, decode, encode, moved_key};

const KEY_CONTEXT: &str = "sandling fleet moved sandbox 1";

/// `moved/<sandbox>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedRecord {
    /// The node that has the sandbox.
    pub node: String,
    /// Grows with each write.
    pub generation: u64,
    /// Tells the writer its own write, also after a restart.
    pub token: String,
    proof: String,
    #[serde(flatten)]
    unknown: BTreeMap<String, serde_json::Value>,
}

/// What the ledger says about a sandbox at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Absent if it never moved: then it is where it was created.
    pub record: Option<MovedRecord>,
    /// The revision of the record, which a move compares.
    pub at: Option<Revision>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// This node has the sandbox.
    Mine,
    /// The record has changed: this is what it says now.
    Other(Whereabouts),
    /// This node has lost its lease.
    Fenced,
}

/// The node has not read the records since it started.
#[derive(Debug, thiserror::Error)]
#[error("this node does not know yet which sandboxes have moved")]
pub struct NotReadYet;

/// The records as this node knows them.
pub struct Moves {
    key: [u8; 32],
    known: Mutex<Option<BTreeMap<String, MovedRecord>>>,
}

impl Moves {
    /// `secret` is what only the fleet's nodes know.
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key(KEY_CONTEXT, secret), known: Mutex::default() }
    }

    /// Follows the records, and reports each change. Runs until the future is dropped.
    pub async fn follow<L: Ledger, C: Clock>(&self, membership: &Membership<L, C>, report: impl Fn()) {
        loop {
            let followed = follow(membership.ledger(), MOVED, |update| {
                match update {
                    Update::All(records) => {
                        let known = records.iter().filter_map(|record| self.read(record)).collect();
                        *self.known() = Some(known);
                    }
                    Update::One(Change::Put(record)) => {
                        if let Some((sandbox, moved)) = self.read(&record) {
                            self.learn(sandbox, moved);
                        }
                    }
                    Update::One(Change::Deleted { key }) => {
                        self.known().get_or_insert_default().remove(name(&key));
                    }
                }
                report();
            });
            if followed.await.is_err() {
                membership.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// The node that has a sandbox which has moved. `None` if it never did.
    pub fn node_of(&self, sandbox: &str) -> Result<Option<String>, NotReadYet> {
        let known = self.known();
        let known = known.as_ref().ok_or(NotReadYet)?;
        Ok(known.get(sandbox).map(|moved| moved.node.clone()))
    }

    /// All records, with their keys, as they are in the ledger.
    pub fn records(&self) -> Vec<(String, String)> {
        let known = self.known();
        known.iter().flatten().map(|(sandbox, moved)| (moved_key(sandbox), encode(moved))).collect()
    }

    /// The sandboxes that have moved and that a node has.
    pub fn at(&self, node: &str) -> Vec<String> {
        let known = self.known();
        let at = known.iter().flatten().filter(|(_, moved)| moved.node == node);
        at.map(|(sandbox, _)| sandbox.clone()).collect()
    }

    /// What the ledger says now.
    pub async fn whereabouts(&self, ledger: &impl Ledger, sandbox: &str) -> Result<Whereabouts, LedgerError> {
        let found = ledger.get(&moved_key(sandbox)).await?;
        let found = self.whereabouts_of(found.as_ref())?;
        if let Some(moved) = &found.record {
            self.learn(sandbox.to_owned(), moved.clone());
        }
        Ok(found)
    }

    fn whereabouts_of(&self, found: Option<&Record>) -> Result<Whereabouts, LedgerError> {
        let Some(found) = found else { return Ok(Whereabouts::default()) };
        match self.read(found) {
            Some((_, moved)) => Ok(Whereabouts { record: Some(moved), at: Some(found.modified) }),
            None => Err(LedgerError::Unexpected(format!("no node has written {}", found.key))),
        }
    }

    /// Makes this node the one that has the sandbox, if its record is still at this revision. After an error the outcome is
    /// unknown: then the caller asks again with the same token.
    pub async fn take<L: Ledger, C: Clock>(
        &self,
        membership: &Membership<L, C>,
        sandbox: &str,
        at: Option<Revision>,
        generation: u64,
        token: &str,
    ) -> Result<Taken, LedgerError> {
        let Some(me) = membership.writer() else { return Ok(Taken::Fenced) };
        let key = moved_key(sandbox);
        let moved = self.record(sandbox, membership.name(), generation, token);
        let take = Transaction::default()
            .when(&key, at.map_or(Expect::Absent, Expect::Modified))
            .then(Write::put(key, encode(&moved)));
        let current = match membership.ledger().commit(me.fence(take)).await? {
            Outcome::Committed(_) => {
                self.learn(sandbox.to_owned(), moved);
                return Ok(Taken::Mine);
            }
            Outcome::Refused(current) => current,
        };
        let found = self.whereabouts_of(current.first().and_then(Option::as_ref))?;
        // An earlier attempt of the same write whose answer was lost.
        if found.record.as_ref() == Some(&moved) {
            self.learn(sandbox.to_owned(), moved);
            return Ok(Taken::Mine);
        }
        Ok(if found.at == at { Taken::Fenced } else { Taken::Other(found) })
    }

    /// Removes the record of a sandbox that has ended here.
    pub async fn forget<L: Ledger, C: Clock>(
        &self,
        membership: &Membership<L, C>,
        sandbox: &str,
    ) -> Result<(), LedgerError> {
        let Some(me) = membership.writer() else { return Ok(()) };
        let found = self.whereabouts(membership.ledger(), sandbox).await?;
        if let (Some(moved), Some(at)) = (found.record, found.at)
            && moved.node == membership.name()
        {
            let key = moved_key(sandbox);
            let forget = Transaction::default().when(&key, Expect::Modified(at)).then(Write::Delete { key });
            membership.ledger().commit(me.fence(forget)).await?;
        }
        Ok(())
    }

    pub(crate) fn record(&self, sandbox: &str, node: &str, generation: u64, token: &str) -> MovedRecord {
        let proof = self.proof(sandbox, node, generation, token).to_hex().to_string();
        let (node, token) = (node.to_owned(), token.to_owned());
        MovedRecord { node, generation, token, proof, unknown: BTreeMap::new() }
    }

    fn proof(&self, sandbox: &str, node: &str, generation: u64, token: &str) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [sandbox, node, token] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.update(&generation.to_le_bytes()).finalize()
    }

    /// `None` if no node has written it.
    fn read(&self, record: &Record) -> Option<(String, MovedRecord)> {
        let sandbox = name(&record.key).to_owned();
        let moved: MovedRecord = decode(record).ok()?;
        let proof = self.proof(&sandbox, &moved.node, moved.generation, &moved.token);
        // This comparison takes the same time wherever the two differ.
        let is_genuine = blake3::Hash::from_hex(&moved.proof).is_ok_and(|given| given == proof);
        if !is_genuine {
            tracing::warn!(key = &*record.key, "the fleet's etcd has a record that no node has written");
        }
        is_genuine.then_some((sandbox, moved))
    }

    /// A change that this node made itself, or has asked for, may be newer than what it follows. Before it has read all
    /// records, it learns none: it must not take itself for one that knows all.
    pub(crate) fn learn(&self, sandbox: String, moved: MovedRecord) {
        let mut known = self.known();
        let Some(known) = known.as_mut() else { return };
        if known.get(&sandbox).is_none_or(|old| old.generation <= moved.generation) {
            known.insert(sandbox, moved);
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<BTreeMap<String, MovedRecord>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(key: &str) -> &str {
    key.strip_prefix(MOVED).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};
    use crate::records::node_key;

    const SANDBOX: &str = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";

    #[tokio::test]
    async fn one_of_source_and_target_gets_the_sandbox() {
        let ledger = ModelLedger::default();
        let (source, target) = (member("a", &ledger), member("b", &ledger));
        register(&source).await;
        register(&target).await;
        let moves = Moves::new(b"secret");
        assert!(moves.node_of(SANDBOX).is_err());
        *moves.known() = Some(BTreeMap::new());
        let mut generation = 0;
        for source_first in [true, false, true] {
            let before = moves.whereabouts(&ledger, SANDBOX).await.unwrap();
            generation += 1;
            let order = if source_first { [&source, &target] } else { [&target, &source] };
            let mut outcomes = Vec::new();
            for node in order {
                outcomes.push(moves.take(node, SANDBOX, before.at, generation, node.name()).await.unwrap());
            }
            assert_eq!(outcomes[0], Taken::Mine);
            let Taken::Other(found) = &outcomes[1] else { panic!("{outcomes:?}") };
            assert_eq!(found.record.as_ref().unwrap().node, order[0].name());
            assert_eq!(moves.node_of(SANDBOX).unwrap().as_deref(), Some(order[0].name()));
            let again = moves.take(order[0], SANDBOX, before.at, generation, order[0].name()).await.unwrap();
            assert_eq!(again, Taken::Mine, "the answer may have been lost");
        }
    }

    /// What a source does whose move ended without an answer, or that has restarted. Returns whether it has the sandbox.
    async fn settles(moves: &Moves, source: &Membership<&ModelLedger, BootClock>) -> bool {
        let found = moves.whereabouts(source.ledger(), SANDBOX).await.unwrap();
        if found.record.as_ref().is_some_and(|record| record.node != source.name()) {
            return false;
        }
        let generation = found.record.map_or(0, |record| record.generation) + 1;
        match moves.take(source, SANDBOX, found.at, generation, "source").await.unwrap() {
            Taken::Mine => true,
            Taken::Other(now) => now.record.unwrap().node == source.name(),
            Taken::Fenced => panic!("it has its lease"),
        }
    }

    #[tokio::test]
    async fn one_has_the_sandbox_whatever_is_lost_and_whoever_crashes() {
        for (source_first, answer_is_lost, target_crashes) in
            (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
        {
            let ledger = ModelLedger::default();
            let (source, target) = (member("a", &ledger), member("b", &ledger));
            register(&source).await;
            register(&target).await;
            let moves = Moves::new(b"secret");
            let before = moves.whereabouts(&ledger, SANDBOX).await.unwrap();
            let taken_back = source_first && settles(&moves, &source).await;
            let taken = moves.take(&target, SANDBOX, before.at, 1, "target").await.unwrap();
            let target_has = if target_crashes {
                register(&target).await;
                let record = moves.whereabouts(&ledger, SANDBOX).await.unwrap().record.unwrap();
                record.node == target.name() && record.token == "target"
            } else {
                taken == Taken::Mine
            };
            let source_has = match (source_first, answer_is_lost || target_crashes) {
                (true, _) => taken_back,
                (false, true) => settles(&moves, &source).await,
                (false, false) => taken != Taken::Mine,
            };
            assert_ne!(source_has, target_has, "{source_first} {answer_is_lost} {target_crashes}");
        }
    }

    #[tokio::test]
    async fn a_node_whose_epoch_is_over_takes_nothing() {
        let ledger = ModelLedger::default();
        let node = member("a", &ledger);
        let moves = Moves::new(b"secret");
        let take = || moves.take(&node, SANDBOX, None, 1, "t");
        assert_eq!(take().await.unwrap(), Taken::Fenced);
        register(&node).await;
        ledger.commit(Transaction::default().then(Write::Delete { key: node_key("a") })).await.unwrap();
        assert_eq!(take().await.unwrap(), Taken::Fenced);
        assert_eq!(moves.whereabouts(&ledger, SANDBOX).await.unwrap(), Whereabouts::default());
    }

    #[tokio::test]
    async fn only_its_node_forgets_a_sandbox_and_only_nodes_are_believed() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let (moves, forger) = (Moves::new(b"secret"), Moves::new(b"guess"));
        forger.take(&a, SANDBOX, None, 1, "t").await.unwrap();
        assert!(moves.whereabouts(&ledger, SANDBOX).await.is_err());
        forger.forget(&a, SANDBOX).await.unwrap();
        moves.take(&a, SANDBOX, None, 1, "t").await.unwrap();
        moves.forget(&b, SANDBOX).await.unwrap();
        assert!(moves.whereabouts(&ledger, SANDBOX).await.unwrap().record.is_some());
        moves.forget(&a, SANDBOX).await.unwrap();
        assert_eq!(moves.whereabouts(&ledger, SANDBOX).await.unwrap(), Whereabouts::default());
    }

    #[tokio::test]
    async fn followers_know_where_a_sandbox_is_and_an_old_message_changes_nothing() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let (moves, follower) = (Moves::new(b"secret"), Moves::new(b"secret"));
        assert!(follower.node_of(SANDBOX).is_err());
        moves.take(&b, SANDBOX, None, 1, "t").await.unwrap();
        let first = ledger.get(&moved_key(SANDBOX)).await.unwrap().unwrap();
        moves.take(&a, SANDBOX, Some(first.modified), 2, "t").await.unwrap();
        follower.whereabouts(&ledger, SANDBOX).await.unwrap();
        assert!(follower.node_of("other").is_err(), "it has read one record and not all");
        *follower.known() = Some(BTreeMap::new());
        follower.whereabouts(&ledger, SANDBOX).await.unwrap();
        assert_eq!(follower.node_of(SANDBOX).unwrap().as_deref(), Some("a"), "before it hears of the change");
        for at in [ledger.get(&moved_key(SANDBOX)).await.unwrap().unwrap(), first] {
            let (sandbox, moved) = follower.read(&at).unwrap();
            follower.learn(sandbox, moved);
            assert_eq!(follower.node_of(SANDBOX).unwrap().as_deref(), Some("a"));
            assert_eq!(follower.at("a"), [SANDBOX]);
        }
        assert_eq!(follower.node_of("other").unwrap(), None);
    }

    #[test]
    fn a_record_of_the_first_version_is_read() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/moved.json");
        let moved: MovedRecord = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
        let moves = Moves::new(b"secret");
        assert_eq!(moved, moves.record(SANDBOX, "b", 3, "0123456789abcdef"));
    }
}
