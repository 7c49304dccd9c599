//! Large uploads, which reach the guest on a disk that it has for a moment.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{ForkSpec, LinkError, Sandbox, Upload, UseError};
use sandling_protocol::{FailureKind, WriteMode};

use crate::harness::{engine, shell};

const MIB: usize = 1 << 20;

/// Bytes of which no two blocks are alike.
fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 17) as u8).collect()
}

async fn send(upload: &mut Upload, bytes: &[u8]) {
    // In pieces as they come from a connection.
    for piece in bytes.chunks(60_001) {
        upload.send(piece).await.unwrap();
    }
}

async fn write(sandbox: &Arc<Sandbox>, path: &str, how: WriteMode, bytes: &[u8]) -> u64 {
    let mut upload = sandbox.write_file(path, how, None, None).unwrap();
    send(&mut upload, bytes).await;
    upload.finish().await.unwrap()
}

async fn is(sandbox: &Arc<Sandbox>, path: &str, expected: &[u8]) -> bool {
    sandbox.read_file(path, 0, None).unwrap().collect(1 << 30).await.unwrap() == expected
}

async fn has_disk(sandbox: &Arc<Sandbox>) -> bool {
    shell(sandbox, "ls /sys/block").await.stdout.lines().any(|name| name.starts_with("sd"))
}

/// The guest notices a moment later that a disk is gone.
async fn disk_is_gone(sandbox: &Arc<Sandbox>) {
    while has_disk(sandbox).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_large_upload_arrives_whole_in_every_mode_and_on_every_file_system() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let long = content(40 * MIB + 4_097);
    assert_eq!(write(&sandbox, "/root/a", WriteMode::Replace, &long).await, long.len() as u64);
    assert!(is(&sandbox, "/root/a", &long).await);
    // Over a longer file, which keeps its inode and so its other name.
    shell(&sandbox, "ln /root/a /root/b").await;
    let short = content(20 * MIB);
    write(&sandbox, "/root/a", WriteMode::Replace, &short).await;
    assert!(is(&sandbox, "/root/b", &short).await);
    write(&sandbox, "/root/a", WriteMode::Append, &long[..12 * MIB + 1]).await;
    assert!(is(&sandbox, "/root/a", &[&short, &long[..12 * MIB + 1]].concat()).await);
    // A file system in memory cannot do without the page cache.
    write(&sandbox, "/dev/shm/c", WriteMode::CreateNew, &short).await;
    assert!(is(&sandbox, "/dev/shm/c", &short).await);
    shell(&sandbox, "sync; echo 3 > /proc/sys/vm/drop_caches").await;
    assert!(is(&sandbox, "/root/b", &[&short, &long[..12 * MIB + 1]].concat()).await, "it is on the disk");
    disk_is_gone(&sandbox).await;
    engine.close().await;
}

#[tokio::test]
async fn an_upload_of_more_than_one_disk_and_others_beside_it_arrive() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let long = content(150 * MIB);
    let short = content(9 * MIB);
    let (first, others) = tokio::join!(write(&sandbox, "/root/long", WriteMode::Replace, &long), async {
        let mut written = 0;
        for n in 0..3 {
            written += write(&sandbox, &format!("/root/short{n}"), WriteMode::Replace, &short).await;
        }
        written
    });
    assert_eq!((first, others), (long.len() as u64, 3 * short.len() as u64));
    assert!(is(&sandbox, "/root/long", &long).await);
    for n in 0..3 {
        assert!(is(&sandbox, &format!("/root/short{n}"), &short).await);
    }
    engine.close().await;
}

#[tokio::test]
async fn forks_checkpoints_and_hibernations_during_uploads_have_no_disk_of_theirs() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let bytes = content(24 * MIB);
    let uploads = async {
        for n in 0..4 {
            write(&sandbox, &format!("/root/{n}"), WriteMode::Replace, &bytes).await;
        }
    };
    let copies = async {
        let mut forks = Vec::new();
        for _ in 0..3 {
            forks.extend(engine.engine.fork(&sandbox, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap());
            engine.engine.checkpoint(&sandbox, None).await.unwrap();
        }
        forks
    };
    let ((), forks) = tokio::join!(uploads, copies);
    for fork in forks {
        disk_is_gone(&fork.sandbox).await;
        // Its own uploads use the same slot.
        write(&fork.sandbox, "/root/own", WriteMode::Replace, &bytes).await;
        assert!(is(&fork.sandbox, "/root/own", &bytes).await);
    }
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    for n in 0..4 {
        assert!(is(&sandbox, &format!("/root/{n}"), &bytes).await);
    }
    write(&sandbox, "/root/after", WriteMode::Replace, &bytes).await;
    engine.close().await;
}

#[tokio::test]
async fn an_upload_that_is_given_up_or_fails_leaves_neither_a_file_nor_a_disk() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let bytes = content(30 * MIB);
    shell(&sandbox, "mkdir /root/f").await;
    for patience in [0, 20, 60, 120, 250, 500] {
        let mut upload = sandbox.write_file("/root/f/new", WriteMode::Replace, None, None).unwrap();
        send(&mut upload, &bytes).await;
        // Cut off at various moments of the end.
        let cut = tokio::time::timeout(Duration::from_millis(patience), upload.finish()).await.is_err();
        if cut {
            assert_eq!(shell(&sandbox, "ls -A /root/f").await.stdout, "");
        }
        shell(&sandbox, "rm -f /root/f/new").await;
    }
    disk_is_gone(&sandbox).await;
    shell(&sandbox, "mount -t tmpfs -o size=5m tmpfs /root/f").await;
    let mut upload = sandbox.write_file("/root/f/full", WriteMode::Replace, None, None).unwrap();
    send(&mut upload, &bytes).await;
    let error = upload.finish().await.unwrap_err();
    let UseError::Link(LinkError::Failed(failure)) = &error else { panic!("{error:?}") };
    assert_eq!(failure.kind, FailureKind::NoSpace);
    assert_eq!(shell(&sandbox, "ls -A /root/f").await.stdout, "");
    write(&sandbox, "/root/after", WriteMode::Replace, &bytes).await;
    assert!(is(&sandbox, "/root/after", &bytes).await);
    engine.close().await;
}
