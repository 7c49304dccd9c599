//! Emulated machines are resumed from cached processes, and restored from device state where that fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_engine::{Engine, EngineConfig, ForkSpec, Sandbox};
use sandling_vmm::accelerator::Accelerator;
use tempfile::TempDir;

use crate::harness::{TestEngine, config, engine, shell, spec};

/// Whether the sandbox's machine was resumed from a cached process, judged by the program in its jail.
fn is_resumed(home: &TempDir, sandbox: &Sandbox) -> bool {
    let record = fs::read(home.path().join("sandboxes").join(sandbox.id().as_str()).join("machine.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    fs::read(format!("/proc/{}/cmdline", record["qemu"]["pid"])).unwrap().starts_with(b"/cached-qemu\0")
}

/// Under KVM there are no cached processes.
fn is_emulated(sandbox: &Sandbox) -> bool {
    sandbox.info().boundary.accelerator == Accelerator::Tcg
}

#[tokio::test]
async fn a_create_a_fork_and_a_wake_resume_a_cached_process() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = engine.create(spec("base")).await.unwrap();
    if is_emulated(&sandbox) {
        assert!(is_resumed(&home, &sandbox));
    }
    shell(&sandbox, "echo before > /root/file; sleep 1000 & echo $! > /root/pid").await;
    for generation in 0..3 {
        let forks = engine.fork(&sandbox, ForkSpec { children: 2, ..ForkSpec::default() }).await.unwrap();
        for fork in forks {
            assert_eq!(is_resumed(&home, &fork.sandbox), is_emulated(&sandbox), "{generation}");
            assert_eq!(shell(&fork.sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.stdout, "before\n");
            fork.sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
        }
        sandbox.hibernate().await.unwrap();
        sandbox.wake().await.unwrap();
        assert_eq!(is_resumed(&home, &sandbox), is_emulated(&sandbox), "{generation}");
        assert_eq!(shell(&sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.exit.code, 0);
    }
    engine.close().await;
}

/// The directory of the newest cached process.
fn newest_cached(home: &TempDir) -> PathBuf {
    let all = fs::read_dir(home.path().join("snapshots")).unwrap().flatten().map(|entry| entry.path());
    let cached = all.filter(|dir| dir.join("thaw.json").exists());
    cached.max_by_key(|dir| fs::metadata(dir.join("thaw.json")).unwrap().modified().unwrap()).unwrap()
}

async fn wakes_without(home: &TempDir, sandbox: &Arc<Sandbox>, damage: impl Fn(&Path)) {
    sandbox.hibernate().await.unwrap();
    damage(&newest_cached(home));
    sandbox.wake().await.unwrap();
    assert!(!is_resumed(home, sandbox));
    assert_eq!(shell(sandbox, "cat /root/file").await.stdout, "still here\n");
}

#[tokio::test]
async fn a_damaged_cached_process_costs_only_time() {
    let TestEngine { engine, home } = engine().await;
    let sandbox = engine.create(spec("base")).await.unwrap();
    if !is_emulated(&sandbox) {
        return engine.close().await;
    }
    shell(&sandbox, "echo still here > /root/file").await;
    let cut = |path: &Path, bytes| {
        fs::remove_file(path).and_then(|()| fs::write(path, vec![0; bytes])).unwrap();
    };
    wakes_without(&home, &sandbox, |cached| cut(&cached.join("process"), 4096)).await;
    wakes_without(&home, &sandbox, |cached| cut(&cached.join("plan"), 0)).await;
    wakes_without(&home, &sandbox, |cached| cut(&cached.join("plan"), 1 << 16)).await;
    wakes_without(&home, &sandbox, |cached| {
        let size = fs::metadata(cached.join("process")).unwrap().len();
        cut(&cached.join("process"), size as usize);
    })
    .await;
    engine.close().await;
}

#[tokio::test]
async fn the_cache_can_be_disabled() {
    let home = TempDir::new().unwrap();
    let engine = Engine::open(EngineConfig { process_cache: false, ..config(&home) }).await.unwrap();
    let sandbox = engine.create(spec("base")).await.unwrap();
    assert!(!is_resumed(&home, &sandbox));
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "echo woken").await.stdout, "woken\n");
    assert!(!is_resumed(&home, &sandbox));
    engine.close().await;
}
