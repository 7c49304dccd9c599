//! A store belongs to one fleet, and a manifest to one workspace.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Barrier;

use super::super::{Blobs, SnapshotRecords, StoreError, SweepError, sweep};
use super::faulty::Faulty;
use super::world::{NoPeers, World, fleet, joined, manifest};

#[tokio::test]
async fn a_manifest_is_read_only_by_its_fleet_and_for_its_workspace() {
    let world = World::new();
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    let written = manifest(vec![stored]);
    let name = world.blobs.put_manifest(&written).await.unwrap();
    assert_eq!(world.blobs.manifest("team", &name).await.unwrap(), written);
    assert!(matches!(world.blobs.manifest("other", &name).await, Err(StoreError::Damaged { .. })));
    let other_fleet = Blobs::new(world.store.clone(), "s3://test", b"other");
    assert!(matches!(other_fleet.manifest("team", &name).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn a_store_has_one_fleet() {
    let world = World::new();
    world.blobs.check().await.unwrap();
    world.blobs.check().await.unwrap();
    let other_fleet = Blobs::new(world.store.clone(), "s3://test", b"other");
    let error = other_fleet.check().await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)) && error.to_string().contains("prefix"), "{error}");
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let swept = sweep(&other_fleet, Duration::ZERO, &SnapshotRecords { membership: &node, shared: &shared }).await;
    assert!(matches!(swept, Err(SweepError::Store(StoreError::Foreign(_)))));
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn two_fleets_that_start_at_once_do_not_both_get_a_store() {
    let store = Faulty::new();
    *store.meet.lock().unwrap() = Some(Arc::new(Barrier::new(2)));
    let [one, other] = [b"one", b"two"].map(|secret| Blobs::new(store.clone(), "s3://test", secret));
    let (first, second) = tokio::join!(one.check(), other.check());
    *store.meet.lock().unwrap() = None;
    let (owner, refused) = if first.is_ok() { (&one, second) } else { (&other, first) };
    assert!(matches!(refused, Err(StoreError::Foreign(_))), "{refused:?}");
    owner.check().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_create_only_what_is_absent_is_a_store_nevertheless() {
    let store = Faulty::new();
    store.creates.store(false, Ordering::SeqCst);
    let [one, other] = [b"one", b"two"].map(|secret| Blobs::new(store.clone(), "s3://test", secret));
    one.check().await.unwrap();
    assert!(matches!(other.check().await, Err(StoreError::Foreign(_))));
}
