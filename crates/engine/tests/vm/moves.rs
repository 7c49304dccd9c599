//! Sandboxes whose move was cut off.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use sandling_engine::{EndReason, Engine, EngineConfig, MoveError, Sandbox, SandboxId, State};
use tempfile::TempDir;

use crate::harness::{config, shell, spec};

async fn open(home: &TempDir) -> Arc<Engine> {
    let engine = Engine::open(EngineConfig { takeover: true, ..config(home) }).await.unwrap();
    engine.settled().await;
    engine
}

async fn sandbox(engine: &Arc<Engine>) -> Arc<Sandbox> {
    let sandbox = engine.create(spec("base")).await.unwrap();
    shell(&sandbox, "echo kept > /tmp/file").await;
    sandbox
}

#[track_caller]
fn find(engine: &Engine, id: &SandboxId) -> Arc<Sandbox> {
    engine.get(id).expect("it is still here")
}

async fn has_state(sandbox: &Arc<Sandbox>) {
    sandbox.wake().await.unwrap();
    assert_eq!(shell(sandbox, "cat /tmp/file").await.stdout, "kept\n");
}

fn file(home: &TempDir, id: &SandboxId) -> PathBuf {
    home.path().join("moves").join(format!("{id}.json"))
}

#[tokio::test]
async fn a_home_that_has_left_its_fleet_keeps_the_sandboxes_whose_move_was_cut_off() {
    let home = TempDir::new().unwrap();
    let engine = open(&home).await;
    let leaving = sandbox(&engine).await;
    let id = leaving.id().clone();
    leaving.hibernate().await.unwrap();
    engine.depart(&id).await.unwrap();
    engine.detach().await;
    drop((engine, leaving));

    let engine = open(&home).await;
    assert_eq!(engine.departed(), std::slice::from_ref(&id));
    assert!(find(&engine, &id).wake().await.is_err(), "nobody knows whose it is");
    engine.end_moves_without_fleet();
    assert!(engine.departed().is_empty() && !file(&home, &id).exists());
    has_state(&find(&engine, &id)).await;
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_whose_move_could_not_begin_goes_on_and_does_so_after_a_restart() {
    let home = TempDir::new().unwrap();
    let engine = open(&home).await;
    let stays = sandbox(&engine).await;
    let id = stays.id().clone();
    stays.hibernate().await.unwrap();
    drop(stays);
    // A file cannot take the place of a directory.
    fs::create_dir_all(file(&home, &id)).unwrap();
    let failed = engine.depart(&id).await;
    assert!(matches!(failed, Err(MoveError::Io(_))), "{failed:?}");
    has_state(&find(&engine, &id)).await;

    // The file of a move that never began: the machine runs.
    fs::remove_dir(file(&home, &id)).unwrap();
    fs::write(file(&home, &id), format!(r#"{{"sandbox":"{id}","version":1}}"#)).unwrap();
    engine.detach().await;
    drop(engine);
    let engine = open(&home).await;
    let again = find(&engine, &id);
    assert_eq!(again.info().state, State::Running);
    assert_eq!(shell(&again, "cat /tmp/file").await.stdout, "kept\n");
    assert!(!file(&home, &id).exists());
    again.end(EndReason::Requested).await.unwrap();
    engine.close().await;
}
