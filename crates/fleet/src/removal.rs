//! Excludes a machine from the fleet.
//!
//! The mark carries the machine's fingerprint and not its name, so another machine can have the name afterwards. All nodes
//! follow the marks and refuse connections of marked machines.

use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::moves::MovedRecord;
use crate::records::{
    MACHINES, MOST_MACHINES, MOVED, MachineRecord, RemovedRecord, decode, drain_key, encode, machine_key, node_key,
    node_tag, removed_key,
};

const PAGE: usize = 1000;

/// Removes the machine with this name, whether it is up or not. False if no machine has the name.
pub async fn remove<L: Ledger>(ledger: &L, node: &str) -> Result<bool, LedgerError> {
    let key = machine_key(node);
    loop {
        let Some(found) = ledger.get(&key).await? else { return Ok(false) };
        let fingerprint = decode::<MachineRecord>(&found)?.fingerprint;
        let mark = RemovedRecord { node: node.to_owned(), unknown: Default::default() };
        let mut removal = Transaction::default()
            .when(&key, Expect::Modified(found.modified))
            .then(Write::put(removed_key(&fingerprint), encode(&mark)));
        for key in [key.clone(), node_key(node), drain_key(node)] {
            removal = removal.then(Write::Delete { key });
        }
        if let Outcome::Committed(_) = ledger.commit(removal).await? {
            forget_moved(ledger, node).await;
            return Ok(true);
        }
    }
}

/// Sandboxes that have moved to the removed node are no longer the fleet's. If this fails, their records stay.
async fn forget_moved<L: Ledger>(ledger: &L, node: &str) {
    let mut after: Option<String> = None;
    while let Ok(page) = ledger.list(MOVED, after.as_deref(), PAGE).await {
        for record in &page.records {
            let is_there = decode::<MovedRecord>(record).is_ok_and(|moved| moved.node == node);
            let unchanged = Transaction::default().when(&*record.key, Expect::Modified(record.modified));
            let key = record.key.to_string();
            if is_there && ledger.commit(unchanged.then(Write::Delete { key })).await.is_err() {
                return;
            }
        }
        match page.records.last() {
            Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
            _ => return,
        }
    }
}

pub async fn is_removed<L: Ledger>(ledger: &L, fingerprint: &str) -> Result<bool, LedgerError> {
    Ok(ledger.get(&removed_key(fingerprint)).await?.is_some())
}

/// The machine whose sandboxes could not be told from those of a new node with this name. It may be down.
pub async fn name_in_use<L: Ledger>(ledger: &L, name: &str) -> Result<Option<String>, LedgerError> {
    let machines = ledger.list(MACHINES, None, MOST_MACHINES).await?.records;
    let names = machines.iter().map(|machine| machine.key.strip_prefix(MACHINES).unwrap_or(&machine.key));
    Ok(names.filter(|other| node_tag(other) == node_tag(name)).map(str::to_owned).next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, member_on, register};

    #[tokio::test]
    async fn a_removed_machine_stays_out_and_its_name_is_free() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        assert!(!remove(&ledger, "a").await.unwrap(), "there is no such node");
        register(&a).await;
        assert_eq!(name_in_use(&ledger, "a").await.unwrap().as_deref(), Some("a"));
        let (other, me) = (member_on("other machine", "a", &ledger), a.writer().unwrap());
        assert!(other.register_or_wait().await.is_none(), "the name is taken");

        assert!(remove(&ledger, "a").await.unwrap());
        let write = me.fence(Transaction::default().then(Write::put("x", "y")));
        assert!(matches!(ledger.commit(write).await.unwrap(), Outcome::Refused(_)));
        assert!(a.register_or_wait().await.is_none());
        assert_eq!(name_in_use(&ledger, "a").await.unwrap(), None);
        register(&other).await;
        assert!(a.register_or_wait().await.is_none(), "the removed machine does not come back");
        assert!(is_removed(&ledger, "a").await.unwrap() && !is_removed(&ledger, "other machine").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_hear_of_it_and_a_machine_that_is_down_can_be_removed() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&b).await;
        ledger.commit(Transaction::default().then(Write::Delete { key: node_key("b") })).await.unwrap();
        register(&a).await;
        assert!(!a.belongs(), "it has not read yet who is removed");
        let removed = async {
            while !b.belongs() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            assert!(!a.is_complete().await.unwrap(), "b is down");
            remove(&ledger, "b").await.unwrap();
            while !a.is_complete().await.unwrap() || !a.has_removed("b") || b.writer().is_some() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = removed => {}
            () = a.watch_members() => {}
            () = b.watch_members() => {}
        }
        assert!(!a.has_removed("a") && a.belongs() && b.has_removed("b") && !b.belongs());
    }
}
