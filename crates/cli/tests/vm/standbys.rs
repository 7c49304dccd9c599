//! Standbys: claimed, replaced behind the request, gone with the engine, and given up when memory is short.

use sandling_engine::{BootMode, EngineConfig};

use crate::harness::{config, engine_with, eventually, python, spec};

#[tokio::test]
async fn a_standby_is_claimed_and_replaced() {
    let engine = engine_with(1).await;
    for _ in 0..2 {
        engine.engine.warm_up("base").await.unwrap();
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
    engine.engine.warm_up("base").await.unwrap();
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
async fn standbys_give_way_when_memory_is_short() {
    let home = tempfile::TempDir::new().unwrap();
    // No host has this much to spare, so the shelf must stay empty and creates must still work.
    let wish = EngineConfig { standbys: 2, spare_memory_mib: u64::MAX, ..config(&home) };
    let engine = sandling_engine::Engine::open(wish).await.unwrap();
    for _ in 0..2 {
        let sandbox = engine.create(spec("base")).await.unwrap();
        assert_eq!(sandbox.info().boot_mode, BootMode::Restore);
        sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
    }
    let sandboxes = home.path().join("sandboxes");
    eventually("an empty shelf", || std::fs::read_dir(&sandboxes).unwrap().count() == 0).await;
    engine.close().await;
}
