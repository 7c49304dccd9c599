//! Sandboxes that are saved without their memory, and boot when they wake.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandling_engine::{
    BootMode, CreateSpec, EndReason, Engine, EngineConfig, ExportError, ForkSpec, Kept, OnVolumes, Sandbox,
    SnapshotError, SnapshotSpec, VolumeError, VolumeSpec,
};
use tempfile::TempDir;

use crate::harness::{chain, config, eventually, shell, spec};

const FURNISH: &str = "echo disk >/root/file; echo volume >/data/file; echo memory >/dev/shm/file; \
    sleep 1000 >/dev/null 2>&1 & echo ready";
const LOOK: &str = "cat /root/file /data/file; echo $COLOR; cat /dev/shm/file 2>/dev/null || echo forgotten; \
    pgrep -c -x sleep; hostname";

fn wish() -> CreateSpec {
    CreateSpec {
        persistent: true,
        env: BTreeMap::from([("COLOR".to_owned(), "blue".to_owned())]),
        volumes: vec![VolumeSpec { name: "data".to_owned(), mount: Some("/data".to_owned()), read_only: false }],
        ..spec("base")
    }
}

async fn hibernate(sandbox: &Arc<Sandbox>) {
    sandbox.hibernate_keeping(Kept::Disk).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert!(sandbox.hibernates() && sandbox.info().sleeps_without_memory());
}

/// Has it all files, and nothing that was in memory?
async fn has_booted(sandbox: &Arc<Sandbox>) {
    let seen = shell(sandbox, LOOK).await;
    let name = &sandbox.id().as_str()[..8];
    assert_eq!(seen.stdout, format!("disk\nvolume\nblue\nforgotten\n0\nsandbox-{name}\n"), "{}", seen.stderr);
}

#[tokio::test]
async fn a_sandbox_without_its_memory_boots_with_its_files_volumes_and_variables() {
    let home = TempDir::new().unwrap();
    let config = EngineConfig { takeover: true, ..config(&home) };
    let first = Engine::open(config.clone()).await.unwrap();
    first.volumes().create("default", "data", 64).await.unwrap();
    let sandbox = first.create(wish()).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let id = sandbox.id().clone();
    assert_eq!(shell(&sandbox, FURNISH).await.stdout, "ready\n");
    hibernate(&sandbox).await;
    let saved = std::fs::read_dir(home.path().join("snapshots")).unwrap().flatten().next().unwrap().path();
    let mut files: Vec<_> = std::fs::read_dir(saved).unwrap().flatten().map(|file| file.file_name()).collect();
    files.sort();
    assert_eq!(files, ["disk.qcow2", "overlay.qcow2"], "memory was stored");

    // Also under another engine.
    first.detach().await;
    drop((sandbox, first));
    let second = Engine::open(config).await.unwrap();
    second.settled().await;
    let sandbox = second.get(&id).expect("it is still there");
    sandbox.wake().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    has_booted(&sandbox).await;

    // From here on it is a sandbox like any other: its memory can be saved and copied.
    shell(&sandbox, "echo again >/dev/shm/file").await;
    sandbox.hibernate().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert!(!sandbox.info().sleeps_without_memory());
    sandbox.wake().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(shell(&sandbox, "cat /dev/shm/file").await.stdout, "again\n");

    // It boots on request, too. The guest loses what it has not written to its disk.
    shell(&sandbox, "sync").await;
    sandbox.hibernate().await.unwrap();
    sandbox.boot().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    has_booted(&sandbox).await;
    second.close().await;
}

#[tokio::test]
async fn a_sandbox_that_has_booted_can_be_forked_and_leaves_nothing_behind() {
    let engine = crate::harness::engine().await;
    let env = BTreeMap::from([("COLOR".to_owned(), "blue".to_owned())]);
    let sandbox = engine.engine.create(CreateSpec { env, ..spec("base") }).await.unwrap();
    hibernate(&sandbox).await;
    sandbox.wake().await.unwrap();
    shell(&sandbox, "echo parent >/dev/shm/file; echo parent >/root/file").await;
    let forked = engine.engine.fork(&sandbox, ForkSpec { children: 1, ..ForkSpec::default() }).await;
    let child = forked.unwrap_or_else(|error| panic!("{}", chain(&error))).remove(0).sandbox;
    assert_eq!(shell(&child, "cat /dev/shm/file /root/file; echo $COLOR").await.stdout, "parent\nparent\nblue\n");
    // The child knows its variables, although they were in its parent's memory.
    hibernate(&child).await;
    child.wake().await.unwrap();
    assert_eq!(shell(&child, "cat /root/file; echo $COLOR").await.stdout, "parent\nblue\n");
    for one in [child, sandbox] {
        one.end(EndReason::Requested).await.unwrap();
    }
    let snapshots = engine.home.path().join("snapshots");
    eventually("an empty directory", || std::fs::read_dir(&snapshots).unwrap().next().is_none()).await;
    engine.close().await;
}

#[tokio::test]
async fn sandboxes_from_a_snapshot_without_memory_boot_and_the_original_goes_on() {
    let engine = crate::harness::engine().await;
    let (engine, home) = (&engine.engine, engine.home.path());
    let sandbox = engine.create(spec("base")).await.unwrap();
    shell(&sandbox, "echo disk >/root/file; echo memory >/dev/shm/file; sleep 1000 >/dev/null 2>&1 &").await;
    let only_disk = SnapshotSpec { kept: Kept::Disk, ..SnapshotSpec::default() };
    let saved = engine.snapshot(&sandbox, only_disk.clone()).await;
    let (snapshot, _) = saved.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert!(!snapshot.has_memory() && snapshot.memory_bytes == 0 && snapshot.disk_bytes > 0);
    assert_eq!(shell(&sandbox, "cat /dev/shm/file; pgrep -c -x sleep").await.stdout, "memory\n1\n");
    let mut out = Vec::new();
    assert!(matches!(engine.snapshots().export(&snapshot, &mut out), Err(ExportError::OnlyDisk)));

    // What comes later is not in it, and both of them can be saved with their memory.
    shell(&sandbox, "echo later >/root/file").await;
    let env = BTreeMap::from([("COLOR".to_owned(), "red".to_owned())]);
    let from_snapshot = Some(snapshot.id.clone());
    let booted = engine.create(CreateSpec { env, from_snapshot, ..spec("base") }).await;
    let booted = booted.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let look = "cat /root/file; echo $COLOR; ls /dev/shm; pgrep -c -x sleep; hostname";
    assert_eq!(booted.info().boot_mode, BootMode::Boot);
    let name = &booted.id().as_str()[..8];
    assert_eq!(shell(&booted, look).await.stdout, format!("disk\nred\n0\nsandbox-{name}\n"));
    for one in [&sandbox, &booted] {
        shell(one, "echo again >/dev/shm/file").await;
        let (whole, _) = engine.snapshot(one, SnapshotSpec::default()).await.unwrap();
        let from_snapshot = Some(whole.id.clone());
        let copy = engine.create(CreateSpec { from_snapshot, ..spec("base") }).await.unwrap();
        let files = "cat /dev/shm/file /root/file";
        assert_eq!(shell(&copy, files).await.stdout, shell(one, files).await.stdout);
        copy.end(EndReason::Requested).await.unwrap();
        engine.snapshots().delete("default", &whole.id).await.unwrap();
    }

    // A guest that stands still writes nothing out.
    sandbox.pause().await.unwrap();
    let refused = engine.snapshot(&sandbox, only_disk).await.unwrap_err();
    assert!(matches!(refused, SnapshotError::Refused(_)), "{}", chain(&refused));
    for one in [sandbox, booted] {
        one.end(EndReason::Requested).await.unwrap();
    }
    engine.snapshots().delete("default", &snapshot.id).await.unwrap();
    let snapshots = home.join("snapshots");
    eventually("an empty directory", || std::fs::read_dir(&snapshots).unwrap().next().is_none()).await;
    engine.close().await;
}

#[tokio::test]
async fn a_snapshot_without_memory_has_no_volumes() {
    let engine = crate::harness::engine().await;
    engine.engine.volumes().create("default", "data", 64).await.unwrap();
    let sandbox = engine.engine.create(wish()).await.unwrap();
    shell(&sandbox, "echo disk >/root/file").await;
    let of = |volumes| SnapshotSpec { volumes, kept: Kept::Disk, ..SnapshotSpec::default() };
    let refused = engine.engine.snapshot(&sandbox, of(Some(OnVolumes::Clone))).await.unwrap_err();
    assert!(matches!(refused, SnapshotError::Volume(VolumeError::OnlyDisk)), "{}", chain(&refused));
    let (snapshot, _) = engine.engine.snapshot(&sandbox, of(Some(OnVolumes::Detach))).await.unwrap();
    let from_snapshot = Some(snapshot.id.clone());
    let booted = engine.engine.create(CreateSpec { from_snapshot, ..spec("base") }).await.unwrap();
    assert_eq!(shell(&booted, "cat /root/file; ls /data 2>&1 | wc -l").await.stdout, "disk\n0\n");
    engine.close().await;
}
