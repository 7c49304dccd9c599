//! What a store or its server does wrong harms no node.

use std::fs;

use super::super::{Digest, StoreError};
use super::faulty::Fault;
use super::world::{NoPeers, World, noise};

#[tokio::test]
async fn what_a_hostile_store_answers_is_never_written() {
    let world = World::new();
    let file = world.file("pages", &noise(50_000));
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    for (fault, why) in [
        (Fault::Truncates, "not those that its name says"),
        (Fault::Corrupts, "not those that its name says"),
        (Fault::Swaps, "not those that its name says"),
        (Fault::Swells, "larger than it can be"),
        (Fault::Fails, "does not answer, or refuses"),
    ] {
        world.store.set(fault);
        let (to, fetched) = world.fetch(&stored, &NoPeers).await;
        let error = fetched.unwrap_err().to_string();
        assert!(error.contains(why), "{fault:?}: {error}");
        assert!(fs::read(&to).unwrap().iter().all(|byte| *byte == 0), "{fault:?}");
    }
    world.store.set(Fault::Nothing);
    // A pack that is genuine and belongs elsewhere.
    let mut mixed = stored.clone();
    mixed.chunks[0].digest = Digest::of(b"other bytes");
    let error = world.fetch(&mixed, &NoPeers).await.1.unwrap_err().to_string();
    assert!(error.contains("not what the snapshot's manifest says"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_given_up() {
    let world = World::new();
    let file = world.file("pages", b"some pages");
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    world.store.set(Fault::NeverAnswers);
    assert!(matches!(world.fetch(&stored, &NoPeers).await.1, Err(StoreError::TimedOut { .. })));
    assert!(matches!(world.blobs.check().await, Err(StoreError::TimedOut { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_pack_may_come_slowly_as_long_as_it_comes() {
    let world = World::new();
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    world.store.set(Fault::Trickles(10));
    world.fetch(&stored, &NoPeers).await.1.unwrap();
    for too_slow in [100, 130] {
        world.store.set(Fault::Trickles(too_slow));
        assert!(matches!(world.fetch(&stored, &NoPeers).await.1, Err(StoreError::TimedOut { .. })), "{too_slow}");
    }
}
