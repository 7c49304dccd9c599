//! Follows the records of a prefix without gaps.

use std::time::Duration;

use crate::ledger::{Change, Ledger, LedgerError, Record};

const PAGE: usize = 1000;
/// A connection that was cut off silently looks like one without news, so nobody waits longer for a change.
const WAIT_AT_MOST: Duration = Duration::from_secs(30);

/// What a follower hears: all records first, then each change.
pub enum Update {
    All(Vec<Record>),
    One(Change),
}

/// Ends with an error, or when nothing has changed for a while. Then the caller follows anew.
pub async fn follow(ledger: &impl Ledger, prefix: &str, mut apply: impl FnMut(Update)) -> Result<(), LedgerError> {
    let mut page = ledger.list(prefix, None, PAGE).await?;
    let mut after = page.revision;
    let mut records = std::mem::take(&mut page.records);
    while let Some(last) = records.last().filter(|_| records.len() % PAGE == 0) {
        let page = ledger.list(prefix, Some(&last.key.clone()), PAGE).await?;
        if page.records.is_empty() {
            break;
        }
        records.extend(page.records);
    }
    apply(Update::All(records));
    loop {
        let Ok(changes) = tokio::time::timeout(WAIT_AT_MOST, ledger.changes(prefix, after)).await else {
            return Ok(());
        };
        let changes = changes?;
        after = changes.until;
        changes.changes.into_iter().for_each(|change| apply(Update::One(change)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{ModelLedger, Transaction, Write};

    #[tokio::test(start_paused = true)]
    async fn a_follower_hears_of_changes_and_does_not_wait_for_one_forever() {
        let ledger = ModelLedger::default();
        let (mut listed, mut changed) = (0, 0);
        let following = follow(&ledger, "x/", |update| match update {
            Update::All(records) => listed += 1 + records.len(),
            Update::One(_) => changed += 1,
        });
        let write = async {
            tokio::time::sleep(WAIT_AT_MOST / 2).await;
            ledger.commit(Transaction::default().then(Write::put("x/1", "y"))).await.unwrap();
        };
        let both = async { tokio::join!(following, write) };
        let (followed, ()) =
            tokio::time::timeout(WAIT_AT_MOST * 2, both).await.expect("it ends without further changes");
        followed.unwrap();
        assert_eq!((listed, changed), (1, 1));
    }
}
