//! What nodes remember of an etcd that is lost, so that a new one can begin with it.
//!
//! Nodes write their tokens, workspaces and settings again by themselves. This is about what only etcd has and each node
//! follows: which machines belong to the fleet, which are removed, where sandboxes are that have moved, and the points of those
//! with failover.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::failover::{self, FAILOVERS};
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::membership::Membership;
use crate::moves::{MovedRecord, Moves};
use crate::records::{
    MACHINES, MOST_MACHINES, MOVED, MachineRecord, REMOVED, RemovedRecord, decode, drain_key, encode, machine_key,
    removed_key,
};
use crate::removal::is_removed;

/// Records by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    records: BTreeMap<String, String>,
}

impl Copies {
    /// What one node remembers.
    pub fn of<L: Ledger, C: Clock>(membership: &Membership<L, C>, moves: &Moves) -> Self {
        let mut records: BTreeMap<_, _> = moves.records().into_iter().collect();
        for machine in membership.machines() {
            let fingerprint = machine.record.fingerprint.clone();
            let record = MachineRecord { fingerprint, unknown: Default::default() };
            records.insert(machine_key(&machine.name), encode(&record));
        }
        for fingerprint in membership.removed() {
            // Nobody follows which name the machine had.
            let record = RemovedRecord { node: String::new(), unknown: Default::default() };
            records.insert(removed_key(&fingerprint), encode(&record));
        }
        if let Some(drain) = membership.drain() {
            records.insert(drain_key(membership.name()), encode(&drain));
        }
        Self { records }
    }

    /// With the records of sandboxes with failover.
    pub fn with_failovers(mut self, records: Vec<(String, String)>) -> Self {
        self.records.extend(records);
        self
    }

    /// Adds what another node remembers. Of two records of one sandbox, the one of the later move counts.
    pub fn merge(&mut self, other: Self) {
        for (key, value) in other.records {
            match self.records.get(&key) {
                Some(known) if !is_later(&key, &value, known) => {}
                _ => drop(self.records.insert(key, value)),
            }
        }
        // What one node knows as removed is not a machine of the fleet for any.
        let removed = |value: &str| {
            let machine = serde_json::from_str::<MachineRecord>(value);
            machine.is_ok_and(|machine| self.records.contains_key(&removed_key(&machine.fingerprint)))
        };
        let gone = self.records.iter().filter(|(key, value)| key.starts_with(MACHINES) && removed(value));
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.records.remove(&key);
        }
    }

    /// How many durable snapshots it knows.
    pub fn snapshots(&self) -> usize {
        self.with_prefix("snapshot/")
    }

    /// How many sandboxes that have moved it knows.
    pub fn moved(&self) -> usize {
        self.with_prefix(MOVED)
    }

    /// How many machines that were removed it knows.
    pub fn removed(&self) -> usize {
        self.with_prefix(REMOVED)
    }

    fn with_prefix(&self, prefix: &str) -> usize {
        self.records.keys().filter(|key| key.starts_with(prefix)).count()
    }

    /// Writes to a ledger that no node uses yet. What it has already stays, unless a copy is of a later move.
    pub async fn write(&self, ledger: &impl Ledger) -> Result<(), LedgerError> {
        self.add(ledger, is_later).await
    }

    /// Writes what a node remembers that changes later than the others, to a ledger that they use already. Only about the
    /// sandboxes that it has itself does it know more than the ledger.
    pub async fn write_late(&self, ledger: &impl Ledger, node: &str) -> Result<(), LedgerError> {
        let is_there = |value: &str| serde_json::from_str::<MovedRecord>(value).is_ok_and(|moved| moved.node == node);
        self.add(ledger, |key, value, known| is_there(value) && is_later(key, value, known)).await
    }

    async fn add(&self, ledger: &impl Ledger, replaces: impl Fn(&str, &str, &str) -> bool) -> Result<(), LedgerError> {
        for (key, value) in &self.records {
            loop {
                let found = ledger.get(key).await?;
                let expected = match &found {
                    None => Expect::Absent,
                    Some(record) if replaces(key, value, &record.value) => Expect::Modified(record.modified),
                    Some(_) => break,
                };
                if key.starts_with(MACHINES) && is_of_removed(ledger, value).await? {
                    break;
                }
                let write = Transaction::default().when(key, expected).then(Write::put(key, value));
                if matches!(ledger.commit(write).await?, Outcome::Committed(_)) {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl From<BTreeMap<String, String>> for Copies {
    fn from(records: BTreeMap<String, String>) -> Self {
        Self { records }
    }
}

async fn is_of_removed(ledger: &impl Ledger, machine: &str) -> Result<bool, LedgerError> {
    match serde_json::from_str::<MachineRecord>(machine) {
        Ok(machine) => is_removed(ledger, &machine.fingerprint).await,
        Err(_) => Ok(false),
    }
}

/// Whether a record of a sandbox is of a later move or point than another one.
fn is_later(key: &str, value: &str, than: &str) -> bool {
    if key.starts_with(FAILOVERS) {
        return failover::age(value) > failover::age(than);
    }
    let generation = |value: &str| serde_json::from_str::<MovedRecord>(value).map_or(0, |moved| moved.generation);
    key.starts_with(MOVED) && generation(value) > generation(than)
}

/// Whether a ledger has machines of a fleet to which this one does not belong.
pub async fn has_other_fleet<L: Ledger>(ledger: &L, name: &str, fingerprint: &str) -> Result<bool, LedgerError> {
    let machines = ledger.list(MACHINES, None, MOST_MACHINES).await?.records;
    let own = machines.iter().find(|machine| *machine.key == *machine_key(name));
    let is_own = own.map(decode::<MachineRecord>).transpose()?.is_some_and(|own| own.fingerprint == fingerprint);
    Ok(!machines.is_empty() && !is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, member_on, register};
    use crate::records::moved_key;
    use crate::removal::{name_in_use, remove};

    const SANDBOX: &str = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";

    #[tokio::test(start_paused = true)]
    async fn a_new_ledger_begins_with_what_the_nodes_remember() {
        let (old, new) = (ModelLedger::default(), ModelLedger::default());
        let (a, b, gone) = (member("a", &old), member("b", &old), member("gone", &old));
        for node in [&a, &b, &gone] {
            register(node).await;
        }
        remove(&old, "gone").await.unwrap();
        let (of_a, of_b) = (Moves::new(b"secret"), Moves::new(b"secret"));
        assert!(matches!(of_a.take(&a, SANDBOX, None, 1, "t").await, Ok(crate::Taken::Mine)));
        let know = async {
            while b.machines().len() < 2 || !b.has_removed("gone") || of_b.records().is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = know => {}
            () = b.watch_members() => {}
            () = of_b.follow(&b, || ()) => {}
        }
        // The first node is lost with the ledger.
        let copies = Copies::of(&b, &of_b);
        assert_eq!((copies.moved(), copies.removed()), (1, 1));
        for _ in 0..2 {
            copies.write(&new).await.unwrap();
        }
        assert!(is_removed(&new, "gone").await.unwrap());
        assert_eq!(name_in_use(&new, "a").await.unwrap().as_deref(), Some("a"));
        assert_eq!(name_in_use(&new, "gone").await.unwrap(), None);
        assert_eq!(of_b.whereabouts(&new, SANDBOX).await.unwrap().record.unwrap().node, "a");
        assert!(member_on("other", "a", &new).register_or_wait().await.is_none(), "its name stays taken");
        register(&member("b", &new)).await;
        assert!(!has_other_fleet(&new, "b", "b").await.unwrap());
        assert!(has_other_fleet(&new, "c", "c").await.unwrap());
    }

    #[tokio::test]
    async fn the_later_move_counts_and_a_removed_machine_stays_removed() {
        let ledger = ModelLedger::default();
        let node = member("a", &ledger);
        register(&node).await;
        let moves = Moves::new(b"secret");
        let mut copies = [Copies::default(), Copies::default()];
        for (generation, copies) in (1..).zip(&mut copies) {
            let at = moves.whereabouts(&ledger, SANDBOX).await.unwrap().at;
            moves.take(&node, SANDBOX, at, generation, "t").await.unwrap();
            let key = moved_key(SANDBOX);
            let value = ledger.get(&key).await.unwrap().unwrap().value.to_string();
            copies.records.insert(key, value);
        }
        let [first, second] = copies;
        let new = ModelLedger::default();
        for copies in [&first, &second, &first] {
            copies.write(&new).await.unwrap();
        }
        assert_eq!(moves.whereabouts(&new, SANDBOX).await.unwrap().record.unwrap().generation, 2);
        let mut merged = second.clone();
        merged.merge(first.clone());
        assert_eq!(merged, second);

        // A node that changes later knows more only about what it has.
        let generation = async |ledger| moves.whereabouts(ledger, SANDBOX).await.unwrap().record.unwrap().generation;
        let late = ModelLedger::default();
        first.write(&late).await.unwrap();
        second.write_late(&late, "b").await.unwrap();
        assert_eq!(generation(&late).await, 1);
        second.write_late(&late, "a").await.unwrap();
        assert_eq!(generation(&late).await, 2);

        let one = |key: String, value: String| Copies { records: [(key, value)].into() };
        let machine = MachineRecord { fingerprint: "f".to_owned(), unknown: Default::default() };
        let mut merged = one(machine_key("x"), encode(&machine));
        merged.merge(one(removed_key("f"), "{}".to_owned()));
        assert!(!merged.records.contains_key(&machine_key("x")));
        one(removed_key("f"), "{}".to_owned()).write(&late).await.unwrap();
        one(machine_key("x"), encode(&machine)).write_late(&late, "a").await.unwrap();
        assert_eq!(name_in_use(&late, "x").await.unwrap(), None, "it was removed meanwhile");
    }
}
