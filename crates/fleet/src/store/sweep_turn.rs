//! Sweeps and uploads of different nodes exclude each other where it matters.
//!
//! An upload relies on packs that the store has already, and a sweep may be about to remove one of them. So a sweep counts
//! itself in the ledger before it removes anything, and reads only then which snapshots there are. An upload reads the count
//! before it looks for its packs, and its record is written only if the count is still the same. So either the sweep sees the
//! record, or the upload learns of the sweep and looks for its packs again. No clock takes part in that.

use std::time::Duration;

use super::registry::{SnapshotRecord, SnapshotRecords};
use crate::claims::Identity;
use crate::clock::Clock;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Revision, Transaction, Write};

/// Written whenever a sweep begins to remove something.
const COUNT: &str = "store-sweeps";
/// Present while a sweep removes something. It has the lease of the sweep's node.
const RUNNING: &str = "store-sweep-running";
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The sweeps that had begun at some moment. None of them removed anything after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepsBefore(Option<Revision>);

/// What came of writing a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploaded {
    Durable,
    /// A sweep has begun meanwhile, and may have removed what the snapshot needs: look for its packs again.
    SweptMeanwhile,
    /// This node may not write now, or the record has changed.
    Fenced,
}

impl<L: Ledger, C: Clock> SnapshotRecords<'_, L, C> {
    /// Waits until no sweep removes anything. An upload looks for its packs only then.
    pub async fn sweeps_before(&self) -> Result<SweepsBefore, LedgerError> {
        loop {
            let count = self.membership.ledger().get(COUNT).await?.map(|count| count.modified);
            if self.membership.ledger().get(RUNNING).await?.is_none() {
                return Ok(SweepsBefore(count));
            }
            self.membership.clock.sleep(AGAIN_AFTER).await;
        }
    }

    /// Writes the record of a snapshot whose packs were found or written after these sweeps, in place of the record of this
    /// revision.
    pub async fn put_uploaded(
        &self,
        workspace: &str,
        id: &str,
        at: Option<Revision>,
        record: &SnapshotRecord,
        before: SweepsBefore,
    ) -> Result<Uploaded, LedgerError> {
        let unswept = Transaction::default().when(COUNT, before.0.map_or(Expect::Absent, Expect::Modified));
        if self.write(at, unswept, self.proven(workspace, id, record)).await? {
            return Ok(Uploaded::Durable);
        }
        let now = self.membership.ledger().get(COUNT).await?.map(|count| count.modified);
        Ok(if now == before.0 { Uploaded::Fenced } else { Uploaded::SweptMeanwhile })
    }

    /// Begins to remove something. Nothing if another node does so, or this node may not write now.
    pub(super) async fn begin_sweep(&self) -> Result<Option<Identity>, LedgerError> {
        let Some(me) = self.membership.writer() else { return Ok(None) };
        let running = Write::Put { key: RUNNING.to_owned(), value: me.node.clone(), lease: self.membership.lease() };
        let begin = Transaction::default().when(RUNNING, Expect::Absent);
        let begin = begin.then(running).then(Write::put(COUNT, me.node.clone()));
        let outcome = self.membership.ledger().commit(me.fence(begin)).await?;
        Ok(matches!(outcome, Outcome::Committed(_)).then_some(me))
    }

    /// Whether a sweep that has begun may still remove something.
    pub(super) fn may_sweep(&self, me: &Identity) -> bool {
        self.membership.writer().as_ref() == Some(me)
    }

    /// Lets uploads go on. If this node has lost its lease, the mark has gone with it.
    pub(super) async fn end_sweep(&self, me: &Identity) {
        while self.membership.is_current(me) {
            let end = Transaction::default().then(Write::Delete { key: RUNNING.to_owned() });
            if self.membership.ledger().commit(me.fence(end)).await.is_ok() {
                return;
            }
            self.membership.clock.sleep(AGAIN_AFTER).await;
        }
    }
}
