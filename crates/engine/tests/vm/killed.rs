//! A machine that is killed in the middle of something: what was acknowledged holds, and nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{EndReason, ForkSpec, RunSpec, Sandbox};

use crate::harness::{TestEngine, engine, eventually, shell};

/// From before the save has begun until after it is over.
const DELAYS_MS: [u64; 4] = [0, 15, 40, 100];

async fn prepared(engine: &TestEngine) -> (Arc<Sandbox>, i32) {
    let sandbox = engine.sandbox().await;
    shell(&sandbox, "echo here > /root/file; head -c 20000000 /dev/urandom > /dev/shm/ballast; sync").await;
    let pid = sandbox.usage().await.unwrap().pid;
    (sandbox, pid)
}

async fn kill_after(delay_ms: u64, pid: i32) {
    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
    // SAFETY: plain kill(2) of a process that this test's own engine started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

fn snapshots(engine: &TestEngine) -> usize {
    std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().count()
}

#[tokio::test]
async fn a_machine_that_is_killed_while_it_hibernates_slept_or_has_ended() {
    let engine = engine().await;
    let other = engine.sandbox().await;
    for delay_ms in DELAYS_MS {
        let (sandbox, pid) = prepared(&engine).await;
        let (slept, ()) = tokio::join!(sandbox.hibernate(), kill_after(delay_ms, pid));
        println!("{delay_ms} ms: {slept:?}");
        if slept.is_ok() {
            sandbox.wake().await.unwrap();
            assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "here\n");
            sandbox.end(EndReason::Requested).await.unwrap();
        } else {
            let ended = tokio::time::timeout(Duration::from_secs(60), sandbox.ended()).await;
            assert!(matches!(ended, Ok(EndReason::GuestDied(_))), "{ended:?}");
        }
        eventually("nothing is left of it", || snapshots(&engine) == 0).await;
    }
    assert_eq!(shell(&other, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}

#[tokio::test]
async fn a_parent_that_is_killed_while_it_is_forked_has_whole_children_or_they_say_why_they_ended() {
    let engine = engine().await;
    for delay_ms in DELAYS_MS {
        let (parent, pid) = prepared(&engine).await;
        let wish = ForkSpec { children: 2, ..ForkSpec::default() };
        let (forked, ()) = tokio::join!(engine.engine.fork(&parent, wish), kill_after(delay_ms, pid));
        println!("{delay_ms} ms: {:?}", forked.as_ref().map(Vec::len).map_err(ToString::to_string));
        let ended = tokio::time::timeout(Duration::from_secs(60), parent.ended()).await;
        assert!(matches!(ended, Ok(EndReason::GuestDied(_))), "{ended:?}");
        for fork in forked.iter().flatten() {
            let child = &fork.sandbox;
            let ran = match child.run(RunSpec::shell("cat /root/file /dev/shm/ballast | wc -c")) {
                Ok(running) => running.collect().await.ok(),
                Err(_) => None,
            };
            if let Some(ran) = ran {
                assert_eq!(ran.stdout, b"20000005\n");
                child.end(EndReason::Requested).await.unwrap();
            } else {
                // Its parent died before all of the parent's pages were written.
                let ended = tokio::time::timeout(Duration::from_secs(60), child.ended()).await;
                assert!(matches!(ended, Ok(EndReason::Lost(_))), "{ended:?}");
            }
        }
        assert!(engine.engine.list().is_empty());
        eventually("nothing is left of it", || snapshots(&engine) == 0).await;
    }
    engine.close().await;
}
