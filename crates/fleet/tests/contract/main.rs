//! One contract for all ledgers.

mod etcd_server;
mod properties;
mod s3_server;

use anyhow::{Context, ensure};
use etcd_server::EtcdServer;
use futures_util::future::BoxFuture;
use s3_server::S3Server;
use sandling_fleet::store::{
    Blobs, Chunk, FetchFile, GRACE, PackedFiles, PeerChunks, Scope, SnapshotRecords, StoreError, StoreLocation,
    UploadFile, sweep,
};
use sandling_fleet::{
    BootClock, Engine, Expect, LeaseSettings, Ledger, LedgerError, Membership, ModelLedger, NodeRecord, Outcome,
    Protocol, SharedRecords, SqliteLedger, Transaction, Write,
};

async fn check_all(ledger: &impl Ledger) -> anyhow::Result<()> {
    properties::one_claim_wins(ledger).await?;
    properties::no_swap_is_lost(ledger).await?;
    properties::transactions_are_whole(ledger).await?;
    properties::an_old_epoch_is_fenced(ledger).await?;
    properties::leases_end(ledger).await?;
    properties::changes_have_no_holes(ledger).await?;
    properties::pages_show_every_key(ledger).await
}

#[tokio::test(start_paused = true)]
async fn the_model_keeps_the_contract() -> anyhow::Result<()> {
    check_all(&ModelLedger::default()).await
}

#[tokio::test]
async fn sqlite_keeps_the_contract() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    check_all(&SqliteLedger::open(&directory.path().join("ledger"))?).await
}

#[tokio::test]
async fn sqlite_remembers_records_and_restarts_leases() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("ledger");
    let first = SqliteLedger::open(&path)?;
    let lease = first.grant(std::time::Duration::from_secs(2)).await?;
    let write = sandling_fleet::Write::Put { key: "node/a".into(), value: "x".into(), lease: Some(lease) };
    first.commit(sandling_fleet::Transaction::default().then(write)).await?;
    let before = first.get("node/a").await?;
    drop(first);
    let second = SqliteLedger::open(&path)?;
    assert_eq!(second.get("node/a").await?, before);
    let after = second.list("node/", None, 1).await?.revision;
    second.changes("node/", after).await?;
    assert_eq!(second.get("node/a").await?, None);
    Ok(())
}

#[test]
fn sqlite_waits_for_those_that_opened_the_file_before() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    for round in 0..10 {
        let path = directory.path().join(format!("ledger-{round}"));
        std::thread::scope(|scope| {
            let openings: Vec<_> = (0..4).map(|_| scope.spawn(|| SqliteLedger::open(&path).map(drop))).collect();
            openings.into_iter().try_for_each(|opening| opening.join().expect("it does not panic"))
        })?;
    }
    Ok(())
}

#[tokio::test]
async fn etcd_keeps_the_contract() -> anyhow::Result<()> {
    let server = EtcdServer::start().await?;
    check_all(&server.ledger()).await
}

#[tokio::test]
async fn an_etcd_after_a_rebuild_keeps_the_contract_and_old_conditions_hold_for_nothing() -> anyhow::Result<()> {
    let (old, new) = (EtcdServer::start().await?, EtcdServer::start().await?);
    let ledger = old.ledger();
    let put = |value: &str| Transaction::default().then(Write::put("key", value));
    ledger.commit(put("old")).await?;
    let before = ledger.get("key").await?.context("it was written")?;
    let after = ledger.list("key", None, 1).await?.revision;
    let (changes, ()) = tokio::join!(ledger.changes("key", after), async {
        ledger.switch_to(Engine { generation: 1, endpoints: new.ledger().engine().endpoints.clone() });
    });
    ensure!(changes.is_err(), "it would have waited for changes of the old etcd");
    ensure!(matches!(ledger.changes("key", after).await, Err(LedgerError::Compacted { .. })));
    ensure!(ledger.get("key").await?.is_none());
    // As many writes as in the old etcd give the same numbers there.
    ledger.commit(put("new")).await?;
    for expect in [Expect::Modified(before.modified), Expect::Created(before.created)] {
        let refused = ledger.commit(put("late").when("key", expect)).await?;
        ensure!(matches!(refused, Outcome::Refused(_)), "{expect:?}");
    }
    let other = ledger.commit(put("new").when("key", Expect::NotCreated(before.created))).await?;
    ensure!(matches!(other, Outcome::Committed(_)));
    ledger.compact(before.modified).await?;
    check_all(&ledger).await
}

struct NoPeers;

impl PeerChunks for NoPeers {
    fn chunk<'a>(&'a self, _: &'a str, _: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { None })
    }
}

#[tokio::test]
async fn a_bucket_is_a_store() -> anyhow::Result<()> {
    let server = S3Server::start("fleet")?;
    let directory = tempfile::tempdir()?;
    let location = StoreLocation::new("s3://fleet/a/prefix", Some(server.url()), None)?;
    let open = |secret: &[u8]| {
        let variables = server.variables().map(|(name, value)| (name.to_owned(), value.to_owned()));
        anyhow::Ok(Blobs::new(location.open_with(variables.into_iter())?, &location.url, secret))
    };
    let blobs = open(b"secret")?;
    blobs.check().await?;
    ensure!(matches!(open(b"other")?.check().await, Err(StoreError::Foreign(_))), "the bucket has a fleet");

    let path = directory.path().join("pages");
    let mut bytes = vec![0; 20 << 20];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    std::fs::write(&path, &bytes)?;
    let file = UploadFile { name: "pages".to_owned(), scope: Scope::Templates, path, content: None };
    let packed = PackedFiles::new(directory.path().join("packed"));
    let stored = blobs.upload(&file, &packed).await?;
    ensure!(stored == blobs.upload(&file, &packed).await?, "the second upload finds everything there");
    let to = directory.path().join("fetched");
    blobs.fetch(&[FetchFile { file: &stored, to: to.clone() }], &NoPeers).await?;
    ensure!(std::fs::read(&to)? == bytes, "the file is as it was");

    let about = NodeRecord {
        fingerprint: "a".to_owned(),
        hardware: String::new(),
        address: String::new(),
        version: String::new(),
        protocol: Protocol::OWN,
        draining: false,
        unknown: Default::default(),
    };
    let node = Membership::new("a", about, ModelLedger::default(), BootClock, LeaseSettings::default());
    let shared = SharedRecords::new(b"secret");
    let records = SnapshotRecords { membership: &node, shared: &shared };
    let sweeps = async {
        while node.writer().is_none() {
            tokio::task::yield_now().await;
        }
        ensure!(sweep(&blobs, GRACE, &records).await?.objects == 0, "all objects are new");
        ensure!(sweep(&blobs, std::time::Duration::ZERO, &records).await?.objects == 3, "no snapshot needs them");
        Ok(())
    };
    tokio::select! {
        swept = sweeps => swept?,
        () = node.keep() => unreachable!("a node is kept for ever"),
    }
    drop(server);
    ensure!(blobs.check().await.is_err(), "the server has gone");
    Ok(())
}
