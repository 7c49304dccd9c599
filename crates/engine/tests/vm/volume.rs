//! Volumes in real machines: who may have them, what survives, and what copies do with them.

use std::sync::Arc;

use sandling_engine::{
    CreateError, CreateSpec, EndReason, ForkError, ForkSpec, OnVolumes, Sandbox, SnapshotError, SnapshotSpec,
    VolumeError, VolumeKind, VolumeSpec,
};

use crate::harness::{TestEngine, chain, engine, eventually, shell, spec};

fn with_volume(read_only: bool) -> CreateSpec {
    let wish = VolumeSpec { name: "data".to_owned(), mount: Some("/data".to_owned()), read_only };
    CreateSpec { volumes: vec![wish], ..spec("base") }
}

async fn attached(engine: &TestEngine, read_only: bool) -> Arc<Sandbox> {
    let created = engine.engine.create(with_volume(read_only)).await;
    created.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

async fn fork(engine: &TestEngine, parent: &Arc<Sandbox>, volumes: OnVolumes) -> Arc<Sandbox> {
    let wish = ForkSpec { children: 1, volumes: Some(volumes), ..ForkSpec::default() };
    let forked = engine.engine.fork(parent, wish).await;
    forked.unwrap_or_else(|error| panic!("{volumes:?}: {}", chain(&error))).remove(0).sandbox
}

#[tokio::test]
async fn a_volume_outlives_sandboxes_and_is_written_by_one_or_read_by_many() {
    let engine = engine().await;
    engine.engine.volumes().create("default", "data", 64).await.unwrap();
    let again = engine.engine.volumes().create("default", "data", 64).await;
    assert!(matches!(again, Err(VolumeError::Exists(_))), "{again:?}");

    let writer = attached(&engine, false).await;
    let ran = shell(&writer, "echo kept > /data/file && stat -f -c %T /data && readlink /dev/vdb").await;
    assert_eq!(ran.stdout, "ext2/ext3\n/dev/sda\n", "{}", ran.stderr);
    for read_only in [false, true] {
        let second = engine.engine.create(with_volume(read_only)).await;
        assert!(matches!(second, Err(CreateError::Volume(VolumeError::InUse { .. }))));
    }
    assert!(matches!(engine.engine.volumes().delete("default", "data"), Err(VolumeError::InUse { .. })));
    // Of what is being written, too, there is a moment.
    engine.engine.copy_volume("default", "data", "moment", VolumeKind::Snapshot).await.unwrap();
    shell(&writer, "echo later > /data/file").await;
    writer.end(EndReason::Requested).await.unwrap();

    let (one, other) = (attached(&engine, true).await, attached(&engine, true).await);
    for reader in [&one, &other] {
        let ran = shell(reader, "cat /data/file; touch /data/new || echo refused").await;
        assert_eq!(ran.stdout, "later\nrefused\n");
    }
    assert!(engine.engine.create(with_volume(false)).await.is_err(), "nobody writes what others read");
    let moment = |read_only| {
        let wish = VolumeSpec { name: "moment".to_owned(), mount: None, read_only };
        CreateSpec { volumes: vec![wish], ..spec("base") }
    };
    assert!(matches!(
        engine.engine.create(moment(false)).await,
        Err(CreateError::Volume(VolumeError::NeverChanges(_)))
    ));
    let reader = engine.engine.create(moment(true)).await.unwrap();
    assert_eq!(shell(&reader, "cat /mnt/moment/file").await.stdout, "kept\n");
    for sandbox in [one, other, reader] {
        sandbox.end(EndReason::Requested).await.unwrap();
    }
    engine.engine.volumes().delete("default", "data").unwrap();
    engine.engine.volumes().delete("default", "moment").unwrap();
    assert_eq!(std::fs::read_dir(engine.home.path().join("volumes")).unwrap().count(), 0);
    engine.close().await;
}

#[tokio::test]
async fn a_copy_of_a_sandbox_does_with_its_volumes_what_was_said_and_nothing_else() {
    let engine = engine().await;
    engine.engine.volumes().create("default", "data", 64).await.unwrap();
    let parent = attached(&engine, false).await;
    // Not written out: what the guest holds back is part of the moment.
    shell(&parent, "echo then > /data/file; (while sleep 0.1; do cat /data/file; done) > /tmp/seen 2>&1 &").await;
    let unsaid = engine.engine.fork(&parent, ForkSpec { children: 1, ..ForkSpec::default() }).await;
    assert!(matches!(unsaid, Err(ForkError::Snapshot(SnapshotError::Volume(VolumeError::NotSaid)))));

    let without = fork(&engine, &parent, OnVolumes::Detach).await;
    let reader = fork(&engine, &parent, OnVolumes::ReadOnly).await;
    let owner = fork(&engine, &parent, OnVolumes::Clone).await;
    shell(&parent, "echo now > /data/file").await;
    assert_eq!(shell(&without, "ls /data; ls /sys/bus/scsi/devices | grep -c :0:0:0").await.stdout, "0\n");
    assert!(without.info().volumes.is_empty());
    assert_eq!(shell(&reader, "cat /data/file; touch /data/new || echo refused").await.stdout, "then\nrefused\n");
    let ran = shell(&owner, "cat /data/file; echo mine > /data/file; cat /data/file").await;
    assert_eq!(ran.stdout, "then\nmine\n", "{}", ran.stderr);
    assert_eq!(shell(&parent, "cat /data/file").await.stdout, "now\n");
    let clone = owner.info().volumes[0].name.clone();
    assert!(clone.starts_with("data-") && engine.engine.volumes().find("default", &clone).unwrap().is_some());

    // A copy of a copy, and one that slept in between.
    reader.hibernate().await.unwrap();
    reader.wake().await.unwrap();
    let grandchild = fork(&engine, &reader, OnVolumes::ReadOnly).await;
    assert_eq!(shell(&grandchild, "cat /data/file").await.stdout, "then\n");

    let (snapshot, _) = engine
        .engine
        .snapshot(&parent, SnapshotSpec { volumes: Some(OnVolumes::Clone), ..SnapshotSpec::default() })
        .await
        .unwrap();
    shell(&parent, "echo after > /data/file").await;
    let from = CreateSpec { from_snapshot: Some(snapshot.id), ..spec("base") };
    let begun = engine.engine.create(from).await.unwrap();
    assert_eq!(shell(&begun, "cat /data/file").await.stdout, "now\n");

    parent.hibernate().await.unwrap();
    assert!(engine.engine.create(with_volume(true)).await.is_err(), "what sleeps still has its volume");
    parent.wake().await.unwrap();
    assert_eq!(shell(&parent, "cat /data/file; echo woken > /data/file").await.stdout, "after\n");
    for sandbox in [without, reader, owner, grandchild, begun, parent] {
        sandbox.end(EndReason::Requested).await.unwrap();
    }
    let named: Vec<String> =
        engine.engine.volumes().list("default").unwrap().into_iter().map(|volume| volume.info.name).collect();
    assert_eq!(named.len(), 3, "the volume and two clones: {named:?}");
    let files = std::fs::read_dir(engine.home.path().join("volumes")).unwrap().count();
    assert_eq!(files, 3, "copies that belonged to a sandbox go with it");
    let last = attached(&engine, true).await;
    assert_eq!(shell(&last, "cat /data/file").await.stdout, "woken\n");
    engine.close().await;
}

#[tokio::test]
async fn a_volume_whose_machine_was_killed_is_mended_by_its_next_user() {
    let engine = engine().await;
    engine.engine.volumes().create("default", "data", 64).await.unwrap();
    let sandbox = attached(&engine, false).await;
    shell(&sandbox, "echo synced > /data/file && sync && echo not yet > /data/other").await;
    let (id, pid) = (sandbox.id().clone(), sandbox.usage().await.unwrap().pid);
    // SAFETY: plain kill(2) of a process that this test's own engine started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    eventually("the sandbox's end", || engine.engine.get(&id).is_none()).await;
    // The first of them replays the journal, and then only reads.
    for reader in [attached(&engine, true).await, attached(&engine, true).await] {
        assert_eq!(shell(&reader, "cat /data/file; touch /data/x || echo refused").await.stdout, "synced\nrefused\n");
    }
    engine.close().await;
}
