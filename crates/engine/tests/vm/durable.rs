//! What was acknowledged is written down; what cannot be written down does not happen.

use std::path::Path;
use std::time::Duration;

use sandling_engine::{ChangeError, CreateSpec, EndReason, LifetimeChange, Sleep, SnapshotSpec};

use crate::harness::{engine, eventually, shell, spec};

/// The store of a home, through which somebody sees to it that nothing can be written.
struct Meddler(rusqlite::Connection);

impl Meddler {
    fn of(home: &Path) -> Self {
        Self(rusqlite::Connection::open(home.join("sandling.db")).unwrap())
    }

    fn refuse(&self, what: &str) {
        let trigger = format!("CREATE TRIGGER meddler BEFORE {what} BEGIN SELECT RAISE(ABORT, 'meddled'); END");
        self.0.execute_batch(&trigger).unwrap();
    }

    fn refuse_state(&self, state: &str) {
        self.refuse(&format!("UPDATE ON sandboxes WHEN json_extract(NEW.detail, '$.state') = '{state}'"));
    }

    fn allow(&self) {
        self.0.execute_batch("DROP TRIGGER meddler").unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_written_down_does_not_happen() {
    let engine = engine().await;
    let meddler = Meddler::of(engine.home.path());
    let sandbox = engine.engine.create(CreateSpec { persistent: true, ..spec("base") }).await.unwrap();
    let directory = || std::fs::read_dir(engine.home.path().join("sandboxes")).unwrap().count();
    shell(&sandbox, "echo one > /root/file").await;
    let checkpoint = engine.engine.checkpoint(&sandbox, None).await.unwrap().number.to_string();

    // Its machine goes on.
    meddler.refuse_state("hibernated");
    let refused = sandbox.hibernate().await;
    assert!(matches!(refused, Err(ChangeError::Store(_))), "{refused:?}");
    assert_eq!(shell(&sandbox, "echo two >> /root/file; cat /root/file").await.stdout, "one\ntwo\n");
    assert!(engine.engine.rewind(&sandbox, &checkpoint).await.is_err());
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\ntwo\n");
    meddler.allow();

    // It sleeps on.
    sandbox.hibernate().await.unwrap();
    meddler.refuse_state("running");
    let refused = sandbox.wake().await;
    assert!(matches!(refused, Err(ChangeError::Store(_))), "{refused:?}");
    assert!(sandbox.hibernates());
    assert_eq!(directory(), 0, "a machine that was given up is still there");
    meddler.allow();
    meddler.refuse("UPDATE ON sandboxes");
    assert!(sandbox.end(EndReason::Requested).await.is_err());
    meddler.allow();
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\ntwo\n");

    // Nothing is acknowledged.
    meddler.refuse("UPDATE ON sandboxes");
    let before = sandbox.info();
    let longer = LifetimeChange { ttl_seconds: Some(Some(77)), ..LifetimeChange::default() };
    assert!(sandbox.set_lifetime(longer).await.is_err());
    assert!(engine.engine.name_checkpoint(&sandbox, &checkpoint, Some("mine".to_owned())).await.is_err());
    assert!(engine.engine.checkpoint(&sandbox, None).await.is_err());
    assert!(sandbox.pause().await.is_err());
    let after = sandbox.info();
    assert_eq!((after.lifetime, after.timeline, after.state), (before.lifetime, before.timeline, before.state));
    meddler.allow();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\ntwo\n");
    engine.engine.rewind(&sandbox, &checkpoint).await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\n");
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_whose_time_is_over_falls_asleep_after_what_is_being_saved() {
    let engine = engine().await;
    let sleep = Sleep { is_free: true, at_the_end: true, ..Sleep::default() };
    let ttl = Some(Duration::from_secs(10));
    let sandbox = engine.engine.create(CreateSpec { sleep, ttl, ..spec("base") }).await.unwrap();
    shell(&sandbox, "echo here > /root/file; head -c 30000000 /dev/urandom > /dev/shm/ballast").await;
    let mut last = None;
    // Until it sleeps, one after another is under way. It waits for a moment in which none is.
    while let Ok((saved, _)) = engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await {
        last = Some(saved.id);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    eventually("it sleeps", || sandbox.hibernates()).await;
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "here\n");
    let begun = engine.engine.create(CreateSpec { from_snapshot: last, ..spec("base") }).await.unwrap();
    assert_eq!(shell(&begun, "cat /root/file").await.stdout, "here\n");
    engine.close().await;
}

#[tokio::test]
async fn the_layer_of_a_save_that_failed_goes_with_its_sandbox() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let meddler = Meddler::of(engine.home.path());
    let layers = || std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().count();
    shell(&sandbox, "echo one > /root/file").await;
    meddler.refuse("INSERT ON snapshots");
    assert!(engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await.is_err());
    assert!(sandbox.hibernate().await.is_err());
    meddler.allow();
    assert_eq!(layers(), 2, "its disk stands on them");
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\n");
    sandbox.end(EndReason::Requested).await.unwrap();
    assert_eq!(layers(), 0);
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_that_hibernates_again_and_again_stands_on_few_layers() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let height = || sandbox.info().standing.disk.len();
    let mut expected = String::new();
    for cycle in 0..14 {
        shell(&sandbox, &format!("echo {cycle} >> /root/file; sync")).await;
        expected += &format!("{cycle}\n");
        sandbox.hibernate().await.unwrap();
        sandbox.wake().await.unwrap();
        // A disk is folded when it stands on twelve.
        eventually("its disk is folded", || height() < 12).await;
    }
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, expected);
    assert!(height() <= 3, "{}", height());
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file; sync").await.stdout, expected);
    sandbox.end(EndReason::Requested).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    engine.close().await;
}
