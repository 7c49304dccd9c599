//! Emulated machines are resumed from cached processes, and restored from device state where that fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sandling_engine::{Cause, Checkpoint, CreateSpec, Engine, EngineConfig, ForkSpec, Sandbox, Timeline, VolumeSpec};
use sandling_vmm::accelerator::Accelerator;
use tempfile::TempDir;

use crate::harness::{TestEngine, config, engine, eventually, shell, spec};

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
    let is_emulated = is_emulated(&sandbox);
    // A busy host may keep a machine from answering in time. Then it is restored without the process, and says so.
    let resumes = |sandbox: &Sandbox| {
        let (resumed, reasons) = (is_resumed(&home, sandbox), fallbacks(&engine, sandbox));
        let is_late = reasons.last().is_some_and(|reason| reason == "silent");
        assert!(resumed == is_emulated || is_late, "resumed: {resumed}, fallbacks: {reasons:?}");
        resumed
    };
    resumes(&sandbox);
    shell(&sandbox, "echo before > /root/file; sleep 1000 & echo $! > /root/pid").await;
    let (mut forks_resumed, mut wakes_resumed) = (0, 0);
    for _ in 0..3 {
        let forks = engine.fork(&sandbox, ForkSpec { children: 2, ..ForkSpec::default() }).await.unwrap();
        for fork in forks {
            forks_resumed += u32::from(resumes(&fork.sandbox));
            assert_eq!(shell(&fork.sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.stdout, "before\n");
            fork.sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
        }
        match is_emulated {
            true => drop(hibernates_with_process(&home, &sandbox).await),
            false => sandbox.hibernate().await.unwrap(),
        }
        sandbox.wake().await.unwrap();
        wakes_resumed += u32::from(resumes(&sandbox));
        assert_eq!(shell(&sandbox, "cat /root/file; kill -0 $(cat /root/pid)").await.exit.code, 0);
    }
    assert_eq!((forks_resumed > 0, wakes_resumed > 0), (is_emulated, is_emulated));
    engine.close().await;
}

/// Makes automatic checkpoints, each before a write of its number. Waits for each: the process of one whose next command
/// comes at once is not stored.
async fn write_numbers(engine: &Engine, sandbox: &Arc<Sandbox>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        engine.before(sandbox, Cause::Exec, "write").await.unwrap();
        shell(sandbox, &format!("echo {number} > /root/file")).await;
        engine.timeline(sandbox).await;
    }
}

/// The checkpoints that have a cached process.
fn cached_numbers(home: &TempDir, timeline: &Timeline) -> Vec<u64> {
    let snapshots = home.path().join("snapshots");
    let is_cached = |one: &&Checkpoint| snapshots.join(one.snapshot.as_str()).join("thaw.json").exists();
    timeline.checkpoints().iter().filter(is_cached).map(|one| one.number).collect()
}

#[tokio::test]
async fn the_newest_automatic_checkpoints_have_a_cached_process_and_older_ones_make_room() {
    let test = engine().await;
    let TestEngine { engine, home } = &test;
    let sandbox = engine.create(CreateSpec { checkpoints: Some(20), ..spec("base") }).await.unwrap();
    if !is_emulated(&sandbox) {
        return test.close().await;
    }
    write_numbers(engine, &sandbox, 0..6).await;
    engine.checkpoint(&sandbox, None).await.unwrap();
    let timeline = engine.timeline(&sandbox).await;
    eventually("only the newest have one", || cached_numbers(home, &timeline) == [4, 5, 6, 7]).await;
    engine.rewind(&sandbox, "5").await.unwrap();
    assert!(is_resumed(home, &sandbox));
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "3\n");

    // Later processes stand on the one that the machine was resumed from, so that one stays.
    write_numbers(engine, &sandbox, 6..10).await;
    let timeline = engine.timeline(&sandbox).await;
    eventually("only the newest have one", || cached_numbers(home, &timeline) == [5, 7, 10, 11, 12]).await;
    let stored: u64 = cached_bytes(home).iter().sum();
    assert!(stored > 0 && engine.snapshots().stored_mib("default") >= stored >> 20, "{stored}");
    engine.rewind(&sandbox, "11").await.unwrap();
    assert!(is_resumed(home, &sandbox));
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "7\n");
    sandbox.end(sandling_engine::EndReason::Requested).await.unwrap();
    test.close().await;
}

/// The sizes of all cached processes.
fn cached_bytes(home: &TempDir) -> Vec<u64> {
    let all = fs::read_dir(home.path().join("snapshots")).unwrap().flatten();
    all.filter_map(|entry| Some(fs::metadata(entry.path().join("process")).ok()?.len())).collect()
}

/// The directory of the newest cached process, and when it was stored.
fn newest_cached(home: &TempDir) -> Option<(SystemTime, PathBuf)> {
    let all = fs::read_dir(home.path().join("snapshots")).unwrap().flatten().map(|entry| entry.path());
    all.filter_map(|dir| Some((fs::metadata(dir.join("thaw.json")).ok()?.modified().ok()?, dir))).max()
}

/// Hibernates until the process is stored. A save goes without it if the threads do not stop in time, as they may not on a
/// busy host.
async fn hibernates_with_process(home: &TempDir, sandbox: &Sandbox) -> PathBuf {
    for _ in 0..3 {
        let before = newest_cached(home);
        sandbox.hibernate().await.unwrap();
        match newest_cached(home) {
            Some(newest) if before.is_none_or(|before| before.0 < newest.0) => return newest.1,
            _ => sandbox.wake().await.unwrap(),
        }
    }
    panic!("three saves went without their process");
}

async fn wakes_without(home: &TempDir, sandbox: &Arc<Sandbox>, damage: impl Fn(&Path)) {
    damage(&hibernates_with_process(home, sandbox).await);
    sandbox.wake().await.unwrap();
    assert!(!is_resumed(home, sandbox));
    assert_eq!(shell(sandbox, "cat /root/file").await.stdout, "still here\n");
}

/// The reasons of the fallbacks that are recorded as events of the sandbox, oldest first.
fn fallbacks(engine: &Engine, sandbox: &Sandbox) -> Vec<String> {
    let events = engine.events().newest(&sandbox.info().workspace, Some(sandbox.id()), 100).unwrap();
    let fallbacks = events.into_iter().filter(|event| event.kind == "process_cache_fallback");
    fallbacks.map(|event| event.detail["reason"].as_str().unwrap().to_owned()).collect()
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
    let reasons = fallbacks(&engine, &sandbox);
    assert_eq!((reasons.len(), reasons[0].as_str()), (4, "damaged"), "{reasons:?}");
    assert!(reasons[1..].iter().all(|reason| ["failed", "silent"].contains(&reason.as_str())), "{reasons:?}");
    engine.close().await;
}

#[tokio::test]
async fn a_machine_with_volumes_falls_back_and_says_so() {
    let TestEngine { engine, home: _home } = engine().await;
    engine.volumes().create("default", "data", 64).await.unwrap();
    let volume = VolumeSpec { name: "data".to_owned(), mount: Some("/data".to_owned()), read_only: false };
    let sandbox = engine.create(CreateSpec { volumes: vec![volume], ..spec("base") }).await.unwrap();
    assert_eq!(fallbacks(&engine, &sandbox), [] as [String; 0], "the volume is attached after the resume");
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    let expected: &[&str] = if is_emulated(&sandbox) { &["volumes"] } else { &[] };
    assert_eq!(fallbacks(&engine, &sandbox), expected);
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
    assert_eq!(fallbacks(&engine, &sandbox), [] as [String; 0]);
    engine.close().await;
}
