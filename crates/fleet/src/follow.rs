//! Follows the records of a prefix without gaps.

use crate::ledger::{Change, Ledger, LedgerError, Record};

const PAGE: usize = 1000;

/// What a follower hears: all records first, then each change.
pub enum Update {
    All(Vec<Record>),
    One(Change),
}

/// Ends only with an error. Then the caller follows anew.
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
        let changes = ledger.changes(prefix, after).await?;
        after = changes.until;
        changes.changes.into_iter().for_each(|change| apply(Update::One(change)));
    }
}
