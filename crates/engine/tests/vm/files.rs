//! Files both ways, any bytes, any size, and what bad paths get.

use std::sync::Arc;

use sandling_engine::{LinkError, Sandbox, UseError};
use sandling_protocol::{ChangeKind, EntryKind, FailureKind, WriteMode};

use crate::harness::{engine, shell};

async fn write(sandbox: &Arc<Sandbox>, path: &str, mode: WriteMode, bytes: &[u8]) -> Result<u64, UseError> {
    let mut upload = sandbox.write_file(path, mode, None, None)?;
    upload.send(bytes).await?;
    upload.finish().await
}

async fn read(sandbox: &Arc<Sandbox>, path: &str) -> Vec<u8> {
    sandbox.read_file(path, 0, None).unwrap().collect(1 << 30).await.unwrap()
}

fn kind(error: &UseError) -> FailureKind {
    match error {
        UseError::Link(LinkError::Failed(failure)) => failure.kind,
        other => panic!("not a failure of the guest's: {other:?}"),
    }
}

#[tokio::test]
async fn large_files_of_any_bytes_go_both_ways_unchanged() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n.wrapping_mul(2_246_822_519) >> 13) as u8).collect();
    assert_eq!(write(&sandbox, "/tmp/new/dir/big", WriteMode::Replace, &bytes).await.unwrap(), 20_000_000);
    assert!(read(&sandbox, "/tmp/new/dir/big").await == bytes);
    let part = sandbox.read_file("/tmp/new/dir/big", 1_000_003, Some(10)).unwrap().collect(100).await.unwrap();
    assert_eq!(part, bytes[1_000_003..1_000_013]);
    assert_eq!(write(&sandbox, "/tmp/zeros", WriteMode::Replace, &vec![0; 300_000]).await.unwrap(), 300_000);
    assert!(read(&sandbox, "/tmp/zeros").await.iter().all(|&byte| byte == 0));
    engine.close().await;
}

#[tokio::test]
async fn append_replace_move_chmod_and_remove_do_what_they_say() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    write(&sandbox, "/tmp/f", WriteMode::Replace, b"one").await.unwrap();
    write(&sandbox, "/tmp/f", WriteMode::Append, b" two").await.unwrap();
    assert_eq!(read(&sandbox, "/tmp/f").await, b"one two");
    assert_eq!(
        kind(&write(&sandbox, "/tmp/f", WriteMode::CreateNew, b"x").await.unwrap_err()),
        FailureKind::AlreadyExists
    );
    sandbox.chmod("/tmp/f", 0o640).await.unwrap();
    write(&sandbox, "/tmp/f", WriteMode::Replace, b"three").await.unwrap();
    let entry = sandbox.stat("/tmp/f").await.unwrap();
    assert_eq!((entry.kind, entry.size, entry.mode & 0o777), (EntryKind::File, 5, 0o640), "the mode is kept");
    sandbox.make_dir("/tmp/d/e", None, true).await.unwrap();
    sandbox.move_path("/tmp/f", "/tmp/d/e/g").await.unwrap();
    let mut names: Vec<_> = sandbox.list_dir("/tmp/d", 2).await.unwrap().into_iter().map(|e| e.path).collect();
    names.sort();
    assert_eq!(names, ["/tmp/d/e", "/tmp/d/e/g"]);
    assert_eq!(kind(&sandbox.remove("/tmp/d", false).await.unwrap_err()), FailureKind::NotEmpty);
    sandbox.remove("/tmp/d", true).await.unwrap();
    assert_eq!(kind(&sandbox.stat("/tmp/d").await.unwrap_err()), FailureKind::NotFound);
    engine.close().await;
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_no_trace() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    write(&sandbox, "/tmp/f/old", WriteMode::Replace, b"old").await.unwrap();
    let mut upload = sandbox.write_file("/tmp/f/old", WriteMode::Replace, None, None).unwrap();
    upload.send(b"half of someth").await.unwrap();
    drop(upload);
    // The next request on the link comes after the cancellation.
    assert_eq!(read(&sandbox, "/tmp/f/old").await, b"old");
    assert_eq!(shell(&sandbox, "ls -A /tmp/f").await.stdout, "old\n");
    engine.close().await;
}

#[tokio::test]
async fn bad_paths_get_a_reason() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    for (path, expected) in [
        ("relative", FailureKind::Invalid),
        ("", FailureKind::Invalid),
        ("/nul\0byte", FailureKind::Invalid),
        ("/no/such", FailureKind::NotFound),
        ("/etc/passwd/x", FailureKind::NotADirectory),
    ] {
        assert_eq!(kind(&sandbox.stat(path).await.unwrap_err()), expected, "{path:?}");
    }
    let error = sandbox.read_file("/tmp", 0, None).unwrap().collect(10).await.unwrap_err();
    assert_eq!(kind(&error), FailureKind::IsADirectory);
    engine.close().await;
}

#[tokio::test]
async fn a_watch_tells_what_changed() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    sandbox.make_dir("/tmp/w", None, true).await.unwrap();
    let mut watch = sandbox.watch("/tmp/w", true).unwrap();
    // The watch was asked for first on the same link, so it is in place when this runs.
    shell(&sandbox, "mkdir /tmp/w/sub; sleep 0.3; echo hi > /tmp/w/sub/file; rm /tmp/w/sub/file").await;
    let mut seen = Vec::new();
    while !seen.contains(&("/tmp/w/sub/file".to_owned(), ChangeKind::Removed)) {
        let change = watch.next().await.unwrap();
        seen.push((change.path, change.kind));
    }
    assert!(seen.contains(&("/tmp/w/sub".to_owned(), ChangeKind::Created)), "{seen:?}");
    assert!(seen.contains(&("/tmp/w/sub/file".to_owned(), ChangeKind::Created)), "{seen:?}");
    engine.close().await;
}
