//! Sweeps remove only garbage, whatever uploads do meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::super::{Digest, GRACE, SnapshotRecord, SnapshotRecords, Swept, Uploaded, sweep};
use super::world::{NoPeers, World, fleet, joined, manifest};
use crate::clock::BootClock;
use crate::ledger::{Ledger, ModelLedger};

fn record(manifest: Digest) -> SnapshotRecord {
    SnapshotRecord::new("a", manifest, String::new(), String::new())
}

/// Whether no sweep removes anything now.
async fn ledger_is_quiet(records: &SnapshotRecords<'_, &ModelLedger, BootClock>) -> bool {
    futures_util::FutureExt::now_or_never(records.sweeps_before()).is_some()
}

#[tokio::test]
async fn a_sweep_removes_only_old_objects_that_no_snapshot_needs() {
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let records = SnapshotRecords { membership: &node, shared: &shared };
    let world = World::new();
    let kept = world.blobs.upload(&world.file("kept", b"kept pages"), &world.packed).await.unwrap();
    let kept = world.blobs.put_manifest(&manifest(vec![kept])).await.unwrap();
    let garbage = world.blobs.upload(&world.file("garbage", b"other pages"), &world.packed).await.unwrap();
    let deleted = world.blobs.put_manifest(&manifest(vec![garbage.clone()])).await.unwrap();
    assert!(records.put("team", "1", None, &record(kept)).await.unwrap());
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default(), "all are new");
    assert!(records.put("team", "2", None, &record(Digest::of(b"lost"))).await.unwrap());
    assert!(sweep(&world.blobs, Duration::ZERO, &records).await.is_err(), "a manifest that is missing");
    assert!(records.remove("team", "2", "a").await.unwrap());
    assert_eq!(sweep(&world.blobs, Duration::ZERO, &records).await.unwrap().objects, 2);
    assert!(world.blobs.manifest("team", &deleted).await.is_err());
    assert!(world.fetch(&garbage, &NoPeers).await.1.is_err());
    let manifest = world.blobs.manifest("team", &kept).await.unwrap();
    world.fetch(&manifest.files[0], &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn an_upload_that_a_sweep_overtakes_looks_for_its_packs_again() {
    let (ledger, shared) = fleet();
    let (uploader, sweeper) = (joined("a", &ledger).await, joined("b", &ledger).await);
    let [on_a, on_b] = [&uploader, &sweeper].map(|membership| SnapshotRecords { membership, shared: &shared });
    let world = World::new();
    let file = world.file("pages", b"some pages");
    world.blobs.upload(&file, &world.packed).await.unwrap();
    world.store.age_all(GRACE * 2).await;

    // The sweep has seen that the pack is garbage, and its deletion is on its way when the upload writes the pack again.
    world.store.deletions.forget_permits(Semaphore::MAX_PERMITS);
    let before = on_a.sweeps_before().await.unwrap();
    let sweeping = sweep(&world.blobs, GRACE, &on_b);
    let uploading = async {
        while ledger_is_quiet(&on_a).await {
            tokio::task::yield_now().await;
        }
        let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
        world.store.deletions.add_permits(1);
        stored
    };
    let (swept, stored) = tokio::join!(sweeping, uploading);
    assert_eq!(swept.unwrap().objects, 1);
    assert!(world.fetch(&stored, &NoPeers).await.1.is_err(), "the pack that was just written is lost");
    let name = world.blobs.put_manifest(&manifest(vec![stored])).await.unwrap();
    let overtaken = on_a.put_uploaded("team", "1", None, &record(name), before).await.unwrap();
    assert_eq!(overtaken, Uploaded::SweptMeanwhile);
    assert_eq!(on_a.get("team", "1").await.unwrap(), None);

    let before = on_a.sweeps_before().await.unwrap();
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    let done = on_a.put_uploaded("team", "1", None, &record(name), before).await.unwrap();
    assert_eq!(done, Uploaded::Durable);
    world.fetch(&stored, &NoPeers).await.1.unwrap();

    // Whatever is old, the sweep sees the record.
    world.store.age_all(GRACE * 2).await;
    assert_eq!(sweep(&world.blobs, GRACE, &on_b).await.unwrap(), Swept::default());
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn the_mark_of_a_sweep_whose_node_died_goes_with_its_lease() {
    let (ledger, shared) = fleet();
    let (a, b) = (joined("a", &ledger).await, joined("b", &ledger).await);
    let [on_a, on_b] = [&a, &b].map(|membership| SnapshotRecords { membership, shared: &shared });
    on_b.begin_sweep().await.unwrap().unwrap();
    assert_eq!(on_a.begin_sweep().await.unwrap(), None, "one at a time");
    assert!(!ledger_is_quiet(&on_a).await);
    ledger.revoke(b.lease().unwrap()).await.unwrap();
    let before = on_a.sweeps_before().await.unwrap();
    assert!(on_a.begin_sweep().await.unwrap().is_some());
    let late = on_a.put_uploaded("team", "1", None, &record(Digest::of(b"manifest")), before).await.unwrap();
    assert_eq!(late, Uploaded::SweptMeanwhile);
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_sweeps_nothing_that_is_new() {
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let records = SnapshotRecords { membership: &node, shared: &shared };
    let world = World::new();
    // The node's clock is two days ahead.
    *world.store.behind.lock().unwrap() = GRACE * 2;
    let file = world.file("pages", b"some pages");
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default());
    let puts = world.store.puts.load(Ordering::SeqCst);
    world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::SeqCst), puts, "the pack is new");
    world.store.age_all(GRACE * 2).await;
    world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::SeqCst), puts + 1, "the pack was old");
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default());
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}
