//! Removing what no durable snapshot and no failover point needs.
//!
//! An object stays for [`GRACE`] after it was written, so that an upload that takes long keeps what it has written. An upload
//! that finds an object older than half of that writes it again. What makes a sweep safe is `sweep_turn.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use object_store::{ObjectMeta, ObjectStore};

use super::blobs::{Blobs, Kind};
use super::clock::StoreTime;
use super::error::StoreError;
use super::registry::SnapshotRecords;
use crate::claims::Identity;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::failover;
use crate::ledger::{Ledger, LedgerError};

pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// A list of all objects of a kind.
const LIST_WITHIN: Duration = Duration::from_secs(1800);
/// Uploads wait while so many objects are removed.
const BATCH: usize = 500;
const AT_ONCE: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("this node has lost its lease, or another node sweeps the store")]
    Fenced,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub objects: usize,
    pub bytes: u64,
}

struct Candidate {
    kind: Kind,
    name: Digest,
    found: ObjectMeta,
}

/// What the snapshots need whose manifests have been read.
#[derive(Default)]
struct Needed {
    manifests: BTreeSet<(String, Digest)>,
    objects: BTreeSet<Digest>,
}

impl Needed {
    /// Reads the manifests of the snapshots that there are now and that were not read yet.
    async fn learn<L: Ledger, C: Clock>(
        &mut self,
        blobs: &Blobs,
        records: &SnapshotRecords<'_, L, C>,
    ) -> Result<(), SweepError> {
        let snapshots = records.all().await?.into_iter().map(|(workspace, _, record)| (workspace, record.manifest));
        let points = failover::manifests(records.membership.ledger(), records.shared).await?;
        for key in snapshots.chain(points) {
            if self.manifests.contains(&key) {
                continue;
            }
            self.objects.extend(blobs.manifest(&key.0, &key.1).await?.packs().copied());
            self.objects.insert(key.1);
            self.manifests.insert(key);
        }
        Ok(())
    }
}

/// Removes objects that are older than `grace` and that no snapshot of this fleet needs. Nothing is removed if the store is
/// another fleet's, or if a manifest cannot be read.
pub async fn sweep<L: Ledger, C: Clock>(
    blobs: &Blobs,
    grace: Duration,
    records: &SnapshotRecords<'_, L, C>,
) -> Result<Swept, SweepError> {
    blobs.check().await?;
    let now = blobs.ask_time().await?;
    let mut candidates = old(blobs, Kind::Pack, now, grace).await?;
    candidates.extend(old(blobs, Kind::Manifest, now, grace).await?);
    let mut swept = Swept::default();
    if candidates.is_empty() {
        return Ok(swept);
    }
    let mut needed = Needed::default();
    needed.learn(blobs, records).await?;
    candidates.retain(|candidate| !needed.objects.contains(&candidate.name));
    for batch in candidates.chunks(BATCH) {
        let me = records.begin_sweep().await?.ok_or(SweepError::Fenced)?;
        let removed = match needed.learn(blobs, records).await {
            Ok(()) => remove(blobs, batch, &needed, records, &me, (now, grace)).await,
            Err(error) => Err(error),
        };
        records.end_sweep(&me).await;
        let removed = removed?;
        swept.objects += removed.objects;
        swept.bytes += removed.bytes;
    }
    Ok(swept)
}

/// Removes those of a batch that are still garbage.
async fn remove<L: Ledger, C: Clock>(
    blobs: &Blobs,
    batch: &[Candidate],
    needed: &Needed,
    records: &SnapshotRecords<'_, L, C>,
    me: &Identity,
    oldest: (StoreTime, Duration),
) -> Result<Swept, SweepError> {
    let mut swept = Swept::default();
    for some in batch.chunks(AT_ONCE) {
        let removing = some.iter().map(|candidate| remove_one(blobs, candidate, needed, records, me, oldest));
        for one in join_all(removing).await {
            let one = one?;
            swept.objects += one.objects;
            swept.bytes += one.bytes;
        }
    }
    Ok(swept)
}

async fn remove_one<L: Ledger, C: Clock>(
    blobs: &Blobs,
    Candidate { kind, name, found }: &Candidate,
    needed: &Needed,
    records: &SnapshotRecords<'_, L, C>,
    me: &Identity,
    (now, grace): (StoreTime, Duration),
) -> Result<Swept, SweepError> {
    // An upload may have written it again since it was listed.
    let again = if needed.objects.contains(name) { None } else { blobs.head(*kind, name).await? };
    if again.is_none_or(|again| now.age(&again) < grace || again.size != found.size) {
        return Ok(Swept::default());
    }
    if !records.may_sweep(me) {
        return Err(SweepError::Fenced);
    }
    blobs.delete(&found.location).await?;
    Ok(Swept { objects: 1, bytes: found.size })
}

async fn old(blobs: &Blobs, kind: Kind, now: StoreTime, grace: Duration) -> Result<Vec<Candidate>, StoreError> {
    let directory = kind.directory();
    let listing = async {
        let listed = blobs.objects.list(Some(&directory)).try_filter_map(|found| async move {
            // What has another name is not ours to remove.
            let name = found.location.filename().and_then(Digest::parse);
            Ok(name.filter(|_| now.age(&found) >= grace).map(|name| Candidate { kind, name, found }))
        });
        listed.try_collect().await
    };
    blobs.within(LIST_WITHIN, &format!("the list of its {directory}"), listing).await
}
