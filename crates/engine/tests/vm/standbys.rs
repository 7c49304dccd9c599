//! Standbys: claimed, replaced behind the request, gone with the engine, and given up when memory is short.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sandling_engine::{BootMode, CreateError, EndReason, Engine, EngineConfig, Standbys};

use crate::harness::{config, engine_with, eventually, python, spec};

#[tokio::test]
async fn a_standby_is_claimed_and_replaced() {
    let engine = engine_with(1).await;
    for _ in 0..2 {
        engine.engine.machines().warm_up("base").await.unwrap();
        let sandbox = engine.engine.create(spec("base")).await.unwrap();
        assert_eq!(sandbox.info().boot_mode, BootMode::Standby);
        assert_eq!(python(&sandbox, "print(1 + 1)").await.stdout, "2\n");
        let kept = sandbox.list_execs().await.unwrap();
        assert_eq!(kept.len(), 1, "exercises left traces: {kept:?}");
    }
    engine.close().await;
}

#[tokio::test]
async fn two_claims_of_one_shelf_differ() {
    let engine = engine_with(2).await;
    engine.engine.machines().warm_up("base").await.unwrap();
    let code = "import os, random; print(os.urandom(8).hex(), random.random())";
    let mut drawn = Vec::new();
    for _ in 0..2 {
        let sandbox = engine.engine.create(spec("base")).await.unwrap();
        drawn.push(python(&sandbox, code).await.stdout);
    }
    assert_ne!(drawn[0], drawn[1]);
    engine.close().await;
}

#[tokio::test]
async fn a_burst_raises_how_many_are_held_for_a_while() {
    let home = tempfile::TempDir::new().unwrap();
    let standbys = Standbys::Auto { forget_after: Duration::from_secs(15) };
    // The result must not depend on how much memory the host has.
    let available_memory_mib = || Some(1 << 20);
    let engine = Engine::open(EngineConfig { standbys, available_memory_mib, ..config(&home) }).await.unwrap();
    engine.machines().warm_up("base").await.unwrap();
    assert_eq!(engine.machines().standby_count(), 1);
    let burst = [spec("base"), spec("base"), spec("base")].map(|spec| engine.create(spec));
    for sandbox in futures_util::future::join_all(burst).await {
        sandbox.unwrap().end(EndReason::Requested).await.unwrap();
    }
    eventually("more standbys", || engine.machines().standby_count() > 1).await;
    eventually("one standby again", || engine.machines().standby_count() == 1).await;
    engine.close().await;
}

/// How much memory the host of this test has to give, in MiB.
static AVAILABLE: AtomicU64 = AtomicU64::new(u64::MAX);
/// Where its machines are.
static MACHINES: OnceLock<PathBuf> = OnceLock::new();

fn machines() -> usize {
    std::fs::read_dir(MACHINES.get().unwrap()).into_iter().flatten().count()
}

#[tokio::test]
async fn standbys_give_way_when_memory_is_short() {
    let home = tempfile::TempDir::new().unwrap();
    MACHINES.set(home.path().join("sandboxes")).unwrap();
    // What a machine that waits has is missing elsewhere.
    let available_memory_mib = || Some(AVAILABLE.load(Ordering::SeqCst).saturating_sub(100 * machines() as u64));
    let wish =
        EngineConfig { standbys: Standbys::Fixed(2), spare_memory_mib: 500, available_memory_mib, ..config(&home) };
    let engine = Engine::open(wish).await.unwrap();
    engine.machines().warm_up("base").await.unwrap();
    assert_eq!(machines(), 2);
    // Enough for a sandbox, if nothing else is there. The shelf itself would notice seconds later.
    AVAILABLE.store(400, Ordering::SeqCst);
    let sandbox = engine.create(spec("base")).await.unwrap();
    assert_eq!(sandbox.info().boot_mode, BootMode::Restore);
    let refused = engine.create(spec("base")).await;
    assert!(matches!(refused, Err(CreateError::NoMemory { available_mib: 300 })), "{:?}", refused.err());
    sandbox.end(EndReason::Requested).await.unwrap();
    // By themselves, too.
    AVAILABLE.store(u64::MAX, Ordering::SeqCst);
    engine.machines().warm_up("base").await.unwrap();
    assert_eq!(machines(), 2);
    AVAILABLE.store(100, Ordering::SeqCst);
    eventually("an empty shelf", || machines() == 0).await;
    engine.close().await;
}
