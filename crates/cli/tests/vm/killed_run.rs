//! A killed `sandling run`: the next start finds and removes its machine.

use std::io::Read;
use std::process::{Command, Stdio};

use sandling_engine::Engine;

use crate::SANDLING;
use crate::harness::{config, eventually, is_running, qemu_processes, templates};

#[tokio::test]
async fn the_next_start_removes_the_machine_of_a_killed_run() {
    let home = tempfile::TempDir::new().unwrap();
    let mut child = Command::new(SANDLING)
        .args(["run", "-t", "base", "-c", "import time; print('up', flush=True); time.sleep(600)"])
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
    assert!(!left.is_empty(), "the machine outlives its engine until the next start");
    let engine = Engine::open(config(&home)).await.unwrap();
    assert!(left.iter().all(|pid| !is_running(*pid)), "{left:?}");
    assert_eq!(std::fs::read_dir(path.join("sandboxes")).unwrap().count(), 0);
    engine.close().await;
}

#[tokio::test]
async fn a_run_interrupted_during_creation_leaves_no_machine() {
    let home = tempfile::TempDir::new().unwrap();
    let mut child = Command::new(SANDLING)
        .args(["run", "-t", "base", "-c", "import time; time.sleep(600)"])
        .env("SANDLING_HOME", home.path())
        .env("SANDLING_TEMPLATES", templates())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let machines = || std::fs::read_dir(home.path().join("sandboxes")).into_iter().flatten().count();
    eventually("a machine is being made", || machines() > 0).await;
    // SAFETY: plain kill(2) of our own child, which has not been reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(machines(), 0, "a machine was left behind");
}
