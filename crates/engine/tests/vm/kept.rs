//! Machines under emulation go on as processes that were kept, and do without where they cannot.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_engine::{Engine, EngineConfig, ForkSpec, Sandbox};
use sandling_vmm::accelerator::Accelerator;
use tempfile::TempDir;

use crate::harness::{TestEngine, config, engine, shell, spec};

/// Whether the sandbox's machine is a process that was kept, by what is executed in its jail.
fn is_kept(home: &TempDir, sandbox: &Sandbox) -> bool {
    let record = fs::read(home.path().join("sandboxes").join(sandbox.id().as_str()).join("machine.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    fs::read(format!("/proc/{}/cmdline", record["qemu"]["pid"])).unwrap().starts_with(b"/cached-qemu\0")
}

/// Nothing is kept where the processor runs guests itself.
fn emulates(sandbox: &Sandbox) -> bool {
    sandbox.info().boundary.accelerator == Accelerator::Tcg
}

#[tokio::test]
async fn a_create_a_fork_and_a_wake_go_on_as_a_kept_process() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = engine.create(spec("base")).await.unwrap();
    if emulates(&sandbox) {
        assert!(is_kept(&home, &sandbox));
    }
    shell(&sandbox, "echo before > /root/file; sleep 1000 & echo $! > /root/pid").await;
    for generation in 0..3 {
        let forks = engine.fork(&sandbox, ForkSpec { children: 2, ..ForkSpec::default() }).await.unwrap();
        for fork in forks {
            assert_eq!(is_kept(&home, &fork.sandbox), emulates(&sandbox), "{generation}");
            assert_eq!(shell(&fork.sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.stdout, "before\n");
            fork.sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
        }
        sandbox.hibernate().await.unwrap();
        sandbox.wake().await.unwrap();
        assert_eq!(is_kept(&home, &sandbox), emulates(&sandbox), "{generation}");
        assert_eq!(shell(&sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.exit.code, 0);
    }
    engine.close().await;
}

/// The files of the process that was kept last.
fn last_kept(home: &TempDir) -> PathBuf {
    let all = fs::read_dir(home.path().join("snapshots")).unwrap().flatten().map(|entry| entry.path());
    let kept = all.filter(|dir| dir.join("thaw.json").exists());
    kept.max_by_key(|dir| fs::metadata(dir.join("thaw.json")).unwrap().modified().unwrap()).unwrap()
}

async fn wakes_without(home: &TempDir, sandbox: &Arc<Sandbox>, damage: impl Fn(&Path)) {
    sandbox.hibernate().await.unwrap();
    damage(&last_kept(home));
    sandbox.wake().await.unwrap();
    assert!(!is_kept(home, sandbox));
    assert_eq!(shell(sandbox, "cat /root/file").await.stdout, "still here\n");
}

#[tokio::test]
async fn a_kept_process_that_is_damaged_costs_time_and_nothing_else() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = engine.create(spec("base")).await.unwrap();
    if !emulates(&sandbox) {
        return engine.close().await;
    }
    shell(&sandbox, "echo still here > /root/file").await;
    let cut = |path: &Path, bytes| {
        fs::remove_file(path).and_then(|()| fs::write(path, vec![0; bytes])).unwrap();
    };
    wakes_without(&home, &sandbox, |kept| cut(&kept.join("process"), 4096)).await;
    wakes_without(&home, &sandbox, |kept| cut(&kept.join("plan"), 0)).await;
    wakes_without(&home, &sandbox, |kept| cut(&kept.join("plan"), 1 << 16)).await;
    wakes_without(&home, &sandbox, |kept| {
        let size = fs::metadata(kept.join("process")).unwrap().len();
        cut(&kept.join("process"), size as usize);
    })
    .await;
    engine.close().await;
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let home = TempDir::new().unwrap();
    let engine = Engine::open(EngineConfig { thaw: false, ..config(&home) }).await.unwrap();
    let sandbox = engine.create(spec("base")).await.unwrap();
    assert!(!is_kept(&home, &sandbox));
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "echo woken").await.stdout, "woken\n");
    assert!(!is_kept(&home, &sandbox));
    engine.close().await;
}
