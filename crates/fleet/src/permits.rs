//! Quotas without a key that every create writes: a node holds permits of a workspace and takes them in batches.
//!
//! The ledger's count of a node's permits is never below what the node believes to hold. So the node believes in more
//! permits only after its write was confirmed, and in fewer before it sends the write.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::claims::Identity;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Revision, Transaction, Write};
use crate::records::{HeldRecord, QuotaRecord, decode, encode, held_prefix, node_key, quota_key};

const LARGEST_BATCH: u32 = 64;

/// What a node holds in its current epoch.
#[derive(Default)]
pub struct Permits {
    epoch: Revision,
    held: BTreeMap<String, Held>,
}

#[derive(Default, Clone, Copy)]
struct Held {
    permits: u32,
    in_use: u32,
    used_at: Duration,
    /// The ledger may still count more than `permits`.
    returning: bool,
}

/// What became of a change of permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// The node's new count.
    Count(u32),
    /// The quota is used up.
    Exhausted,
    /// Another node or the fence was faster.
    Conflict,
}

impl Permits {
    pub fn new(epoch: Revision) -> Self {
        Self { epoch, held: BTreeMap::new() }
    }

    /// Whether there was a free permit. It is now in use.
    pub fn take(&mut self, workspace: &str, epoch: Revision, now: Duration) -> bool {
        let Some(held) = self.held.get_mut(workspace).filter(|_| self.epoch == epoch) else { return false };
        let free = held.permits > held.in_use;
        held.in_use += u32::from(free);
        held.used_at = now;
        free
    }

    /// For a sandbox that runs already.
    pub fn count_running(&mut self, workspace: &str) {
        self.held.entry(workspace.to_owned()).or_default().in_use += 1;
    }

    /// Permits of an earlier epoch are no longer ours to give back.
    pub fn give_back(&mut self, workspace: &str, epoch: Revision) {
        if let Some(held) = self.held.get_mut(workspace).filter(|_| self.epoch == epoch) {
            held.in_use = held.in_use.saturating_sub(1);
        }
    }

    pub fn set_held(&mut self, workspace: &str, permits: u32, epoch: Revision) {
        if self.epoch == epoch {
            let held = self.held.entry(workspace.to_owned()).or_default();
            (held.permits, held.returning) = (permits, false);
        }
    }

    pub fn count(&self, workspace: &str) -> u32 {
        self.held.get(workspace).map_or(0, |held| held.permits)
    }

    /// The workspaces with permits that nobody has used for a while, and how many stay. The others are gone from here.
    pub fn drop_idle(&mut self, now: Duration, idle: Duration) -> Vec<(String, u32)> {
        let is_idle = |held: &Held| held.permits > held.in_use && now >= held.used_at + idle;
        let idle = self.held.iter_mut().filter(|(_, held)| held.returning || is_idle(held));
        idle.map(|(workspace, held)| {
            (held.permits, held.returning) = (held.in_use, true);
            (workspace.clone(), held.permits)
        })
        .collect()
    }
}

fn batch(quota: &QuotaRecord) -> u32 {
    let headroom = quota.limit.saturating_sub(quota.used);
    (headroom / (2 * (quota.holders + 1))).clamp(1, LARGEST_BATCH).min(headroom)
}

/// Takes a batch more than the node believes to hold.
pub async fn acquire(
    ledger: &impl Ledger,
    me: &Identity,
    workspace: &str,
    believed: u32,
) -> Result<Share, LedgerError> {
    let more = |quota: &QuotaRecord, held| Some(held + batch(quota)).filter(|count| *count > believed);
    change(ledger, me, &me.node, workspace, more).await
}

/// Keeps only so many.
pub async fn keep(ledger: &impl Ledger, me: &Identity, workspace: &str, count: u32) -> Result<Share, LedgerError> {
    change(ledger, me, &me.node, workspace, |_, held| Some(held.min(count))).await
}

/// Writes the count of an earlier epoch anew, so that no late write of that epoch can change it.
pub async fn adopt(ledger: &impl Ledger, me: &Identity, workspace: &str) -> Result<Share, LedgerError> {
    change(ledger, me, &me.node, workspace, |_, held| Some(held)).await
}

/// Returns the permits of a node that is gone and whose sandboxes are closed.
pub async fn return_for(
    ledger: &impl Ledger,
    me: &Identity,
    dead: &str,
    workspace: &str,
) -> Result<Share, LedgerError> {
    change(ledger, me, dead, workspace, |_, _| Some(0)).await
}

/// One transaction on the quota and one node's share of it.
async fn change(
    ledger: &impl Ledger,
    me: &Identity,
    holder: &str,
    workspace: &str,
    count: impl Fn(&QuotaRecord, u32) -> Option<u32>,
) -> Result<Share, LedgerError> {
    let (quota_key, held_key) = (quota_key(workspace), format!("{}{workspace}", held_prefix(holder)));
    let Some(quota_record) = ledger.get(&quota_key).await? else { return Ok(Share::Exhausted) };
    let held_record = ledger.get(&held_key).await?;
    let mut quota: QuotaRecord = decode(&quota_record)?;
    let mut held: HeldRecord = held_record.as_ref().map(decode).transpose()?.unwrap_or_default();
    let before = held.permits;
    let Some(after) = count(&quota, before) else { return Ok(Share::Exhausted) };
    held.permits = after;
    quota.used = (quota.used + held.permits).saturating_sub(before);
    quota.holders = (quota.holders + u32::from(held.permits > 0)).saturating_sub(u32::from(before > 0));
    let expected = held_record.map_or(Expect::Absent, |record| Expect::Modified(record.modified));
    let mut transaction = Transaction::default()
        .when(&quota_key, Expect::Modified(quota_record.modified))
        .when(&held_key, expected)
        .then(Write::put(quota_key, encode(&quota)));
    transaction = match held.permits {
        0 => transaction.then(Write::Delete { key: held_key }),
        _ => transaction.then(Write::put(held_key, encode(&held))),
    };
    if holder != me.node {
        transaction = transaction.when(node_key(holder), Expect::Absent);
    }
    match ledger.commit(me.fence(transaction)).await? {
        Outcome::Committed(_) => Ok(Share::Count(held.permits)),
        Outcome::Refused(_) => Ok(Share::Conflict),
    }
}
