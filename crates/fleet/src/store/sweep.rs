//! Removing what no durable snapshot needs.
//!
//! An object stays for [`GRACE`] after it was written: an upload that refers to it may not be finished. An upload that finds
//! an object older than half of that writes it again. So what a sweep removes was not relied on for many hours.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore};

use super::blobs::{Blobs, Kind};
use super::digest::Digest;
use super::error::StoreError;
use super::upload::age;

pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// A list of all objects of a kind.
const LIST_WITHIN: Duration = Duration::from_secs(1800);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub objects: usize,
    pub bytes: u64,
}

/// Removes objects that are older than `grace` and that no snapshot of this fleet needs. Nothing is removed if the store is
/// another fleet's. `snapshots` says which snapshots there are, by
/// workspace and manifest. It is called after the objects were listed. If a manifest cannot be read, nothing is removed.
pub async fn sweep<E, F>(blobs: &Blobs, grace: Duration, snapshots: impl FnOnce() -> F) -> Result<Swept, E>
where
    E: From<StoreError>,
    F: Future<Output = Result<Vec<(String, Digest)>, E>>,
{
    blobs.check().await?;
    let packs = old(blobs, Kind::Pack, grace).await?;
    let manifests = old(blobs, Kind::Manifest, grace).await?;
    if packs.is_empty() && manifests.is_empty() {
        return Ok(Swept::default());
    }
    let mut needed = BTreeSet::new();
    for (workspace, name) in snapshots().await? {
        needed.extend(blobs.manifest(&workspace, &name).await?.packs().copied());
        needed.insert(name);
    }
    let mut swept = Swept::default();
    for (kind, (name, found)) in
        packs.into_iter().map(|pack| (Kind::Pack, pack)).chain(manifests.into_iter().map(|name| (Kind::Manifest, name)))
    {
        // It may have been written again since it was listed.
        let is_garbage = !needed.contains(&name)
            && blobs.head(kind, &name).await?.is_some_and(|now| age(&now) >= grace && now.size == found.size);
        if is_garbage {
            blobs.delete(&found.location).await?;
            swept.objects += 1;
            swept.bytes += found.size;
        }
    }
    Ok(swept)
}

async fn old(blobs: &Blobs, kind: Kind, grace: Duration) -> Result<Vec<(Digest, ObjectMeta)>, StoreError> {
    let directory = kind.directory();
    let listing = async {
        let listed = blobs.objects.list(Some(&directory)).try_filter_map(|found| async move {
            // What has another name is not ours to remove.
            let name = found.location.filename().and_then(Digest::parse);
            Ok(name.filter(|_| age(&found) >= grace).map(|name| (name, found)))
        });
        listed.try_collect().await
    };
    blobs.within(LIST_WITHIN, &format!("the list of its {directory}"), listing).await
}
