//! Engines that share a home, and machines that die.

use std::time::Duration;

use sandling_engine::{EndReason, Engine, Output, RunError, RunSpec};

use crate::harness::{config, engine, engine_with, qemu_processes, shell, spec};

#[tokio::test]
async fn a_second_engine_leaves_the_sandboxes_of_the_first_alone() {
    let first = engine().await;
    let sandbox = first.sandbox().await;
    let second = Engine::open(config(&first.home)).await.unwrap();
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    second.close().await;
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    first.close().await;
}

#[tokio::test]
async fn a_killed_machine_is_noticed_at_once() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let mut running = sandbox.run(RunSpec::shell("echo partial; sleep 600")).unwrap();
    while !matches!(running.next().await.unwrap(), Output::Bytes { .. }) {}
    let collecting = tokio::spawn(running.collect());
    for pid in qemu_processes(engine.home.path()) {
        // SAFETY: plain kill(2) of a process that this test's own engine started.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), sandbox.ended()).await.unwrap();
    assert!(matches!(ended, EndReason::GuestDied(_)), "{ended:?}");
    assert!(matches!(collecting.await.unwrap(), Err(RunError::GuestDied(_))));
    engine.close().await;
}

#[tokio::test]
async fn dead_standbys_are_not_handed_out() {
    let engine = engine_with(1).await;
    engine.engine.machines().warm_up("base").await.unwrap();
    for pid in qemu_processes(engine.home.path()) {
        // SAFETY: plain kill(2) of a process that this test's own engine started.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    let sandbox = engine.engine.create(spec("base")).await.unwrap();
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}
