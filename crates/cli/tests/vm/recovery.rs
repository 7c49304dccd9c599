//! What is left when a process is killed: nothing that the next start does not find and end.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use sandling_engine::{EndReason, Engine, Output, RunError, RunSpec};

use crate::harness::{SANDLING, config, engine, engine_with, eventually, shell, spec, templates};

fn qemu_processes(home: &std::path::Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.join("sandboxes")).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read(entry.path().join("machine.json")) else { continue };
        let machine: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        found.extend(machine.as_object().into_iter().flatten().filter_map(|(key, value)| {
            let pid = value
                .get("pid")
                .and_then(serde_json::Value::as_u64)
                .or_else(|| key.ends_with("pid").then(|| value.as_u64()).flatten())?;
            u32::try_from(pid).ok()
        }));
    }
    found.retain(|pid| is_running(*pid));
    found
}

fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_killed_run_leaves_nothing_that_the_next_start_does_not_end() {
    let home = tempfile::TempDir::new().unwrap();
    let mut child = Command::new(SANDLING)
        .args(["run", "-c", "import time; print('up', flush=True); time.sleep(600)"])
        .env("SANDLING_HOME", home.path())
        .env("SANDLING_TEMPLATES", templates())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let path = home.path().to_owned();
    let mut said = [0; 3];
    child.stdout.take().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"up\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = qemu_processes(&path);
    assert!(!left.is_empty(), "the machine outlives its engine until somebody looks");
    let engine = Engine::open(config(&home)).await.unwrap();
    assert!(left.iter().all(|pid| !is_running(*pid)), "{left:?}");
    assert_eq!(std::fs::read_dir(path.join("sandboxes")).unwrap().count(), 0);
    engine.close().await;
}

#[tokio::test]
async fn a_run_that_is_interrupted_while_its_sandbox_is_made_leaves_nothing() {
    let home = tempfile::TempDir::new().unwrap();
    let mut child = Command::new(SANDLING)
        .args(["run", "-c", "import time; time.sleep(600)"])
        .env("SANDLING_HOME", home.path())
        .env("SANDLING_TEMPLATES", templates())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let machines = || std::fs::read_dir(home.path().join("sandboxes")).into_iter().flatten().count();
    eventually("a machine is being made", || machines() > 0).await;
    // SAFETY: plain kill(2) of a child of ours that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(machines(), 0, "a machine was left behind");
}

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
    let ended = tokio::time::timeout(Duration::from_secs(5), sandbox.ended()).await.unwrap();
    assert!(matches!(ended, EndReason::GuestDied(_)), "{ended:?}");
    assert!(matches!(collecting.await.unwrap(), Err(RunError::GuestDied(_))));
    engine.close().await;
}

#[tokio::test]
async fn dead_standbys_are_not_handed_out() {
    let engine = engine_with(1).await;
    engine.engine.warm_up("base").await.unwrap();
    for pid in qemu_processes(engine.home.path()) {
        // SAFETY: plain kill(2) of a process that this test's own engine started.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    let sandbox = engine.engine.create(spec("base")).await.unwrap();
    assert_eq!(shell(&sandbox, "echo alive").await.stdout, "alive\n");
    engine.close().await;
}
