//! One contract for all ledgers.

mod etcd_server;
mod properties;

use etcd_server::EtcdServer;
use sandling_fleet::{Ledger, ModelLedger, SqliteLedger};

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
