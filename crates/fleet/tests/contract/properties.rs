//! What every ledger must do. Each property uses keys of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::try_join_all;
use sandling_fleet::{Change, Expect, Ledger, LedgerError, Outcome, Record, Revision, Transaction, Write};

fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().then(Write::put(key, value))
}

fn leased(key: &str, lease: sandling_fleet::LeaseId) -> Write {
    Write::Put { key: key.to_owned(), value: "leased".to_owned(), lease: Some(lease) }
}

fn committed(outcome: Outcome) -> anyhow::Result<Revision> {
    match outcome {
        Outcome::Committed(revision) => Ok(revision),
        Outcome::Refused(current) => bail!("refused: {current:?}"),
    }
}

fn refused(outcome: Outcome) -> anyhow::Result<Vec<Option<Record>>> {
    match outcome {
        Outcome::Refused(current) => Ok(current),
        Outcome::Committed(revision) => bail!("committed at {revision:?}"),
    }
}

async fn wait_until_gone(ledger: &impl Ledger, key: &str) -> anyhow::Result<()> {
    for _ in 0..600 {
        if ledger.get(key).await?.is_none() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{key} is still there")
}

/// Sixteen nodes want the same key, and one gets it. The others see the winner's record.
pub async fn one_claim_wins(ledger: &impl Ledger) -> anyhow::Result<()> {
    for key in (0..20).map(|number| format!("claim/{number}")) {
        let claims = (0..16).map(|node| {
            let claim = put(&key, &format!("node {node}")).when(&key, Expect::Absent);
            ledger.commit(claim)
        });
        let outcomes = try_join_all(claims).await?;
        let winners = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Committed(_))).count();
        ensure!(winners == 1, "{winners} winners of {key}");
        let record = ledger.get(&key).await?;
        let losers = outcomes.into_iter().filter(|outcome| !matches!(outcome, Outcome::Committed(_)));
        for loser in losers {
            ensure!(refused(loser)? == vec![record.clone()]);
        }
    }
    Ok(())
}

/// Eight nodes count to 80 together by comparing revisions.
pub async fn no_swap_is_lost(ledger: &impl Ledger) -> anyhow::Result<()> {
    ledger.commit(put("swap/count", "0")).await?;
    let count = |_| async {
        for _ in 0..10 {
            loop {
                let record = ledger.get("swap/count").await?.context("the counter is gone")?;
                let next = record.value.parse::<u32>()? + 1;
                let swap = put("swap/count", &next.to_string()).when("swap/count", Expect::Modified(record.modified));
                if let Outcome::Committed(_) = ledger.commit(swap).await? {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    try_join_all((0..8).map(count)).await?;
    let record = ledger.get("swap/count").await?.context("the counter is gone")?;
    ensure!(&*record.value == "80", "{}", record.value);
    Ok(())
}

/// All writes of a transaction happen at one revision, or none.
pub async fn transactions_are_whole(ledger: &impl Ledger) -> anyhow::Result<()> {
    let first = committed(ledger.commit(put("whole/a", "1").then(Write::put("whole/b", "1"))).await?)?;
    for key in ["whole/a", "whole/b"] {
        let record = ledger.get(key).await?.context("missing")?;
        ensure!((record.created, record.modified) == (first, first), "{record:?}");
    }
    let half = put("whole/a", "2")
        .then(Write::Delete { key: "whole/b".to_owned() })
        .when("whole/a", Expect::Modified(first))
        .when("whole/c", Expect::Created(first));
    let current = refused(ledger.commit(half.clone()).await?)?;
    ensure!(current[0].as_ref().is_some_and(|record| &*record.value == "1") && current[1].is_none());
    let both = Transaction { conditions: half.conditions[..1].to_vec(), writes: half.writes };
    let second = committed(ledger.commit(both).await?)?;
    let record = ledger.get("whole/a").await?.context("missing")?;
    ensure!(second > first && (record.created, record.modified) == (first, second), "{record:?}");
    ensure!(ledger.get("whole/b").await?.is_none());
    Ok(())
}

/// What a node writes with its epoch is refused after its lease has ended, and after it has registered again.
pub async fn an_old_epoch_is_fenced(ledger: &impl Ledger) -> anyhow::Result<()> {
    let ttl = Duration::from_secs(60);
    let register = async || {
        let lease = ledger.grant(ttl).await?;
        let node = Transaction::default().when("fence/node", Expect::Absent).then(leased("fence/node", lease));
        anyhow::Ok((lease, committed(ledger.commit(node).await?)?))
    };
    let (lease, epoch) = register().await?;
    let claim = |key: &str| put(key, "mine").when("fence/node", Expect::Created(epoch));
    let not_before = put("fence/taken", "theirs").when("fence/node", Expect::NotCreated(epoch));
    committed(ledger.commit(claim("fence/one")).await?)?;
    refused(ledger.commit(not_before.clone()).await?)?;
    // An update with the same lease does not end the epoch.
    committed(ledger.commit(Transaction::default().then(leased("fence/node", lease))).await?)?;
    committed(ledger.commit(claim("fence/two")).await?)?;
    ledger.revoke(lease).await?;
    ledger.revoke(lease).await?;
    refused(ledger.commit(claim("fence/three")).await?)?;
    committed(ledger.commit(not_before.clone()).await?)?;
    let (_, next_epoch) = register().await?;
    ensure!(next_epoch > epoch);
    refused(ledger.commit(claim("fence/three")).await?)?;
    committed(ledger.commit(not_before).await?)?;
    ensure!(ledger.get("fence/three").await?.is_none());
    Ok(())
}

/// A lease that nobody renews ends and takes its keys along. A key that was written anew without it stays.
pub async fn leases_end(ledger: &impl Ledger) -> anyhow::Result<()> {
    let ttl = Duration::from_secs(2);
    let (kept, dropped) = (ledger.grant(ttl).await?, ledger.grant(ttl).await?);
    let writes = [("lease/kept", kept), ("lease/dropped", dropped), ("lease/freed", dropped)];
    for (key, lease) in writes {
        committed(ledger.commit(Transaction::default().then(leased(key, lease))).await?)?;
    }
    committed(ledger.commit(put("lease/freed", "free")).await?)?;
    let renewals = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Err(error) = ledger.renew(kept).await {
                return error;
            }
        }
    };
    tokio::select! {
        gone = wait_until_gone(ledger, "lease/dropped") => gone?,
        refused = renewals => return Err(refused.into()),
    }
    ensure!(ledger.get("lease/kept").await?.is_some() && ledger.get("lease/freed").await?.is_some());
    ensure!(matches!(ledger.renew(dropped).await, Err(LedgerError::LeaseGone)));
    let late = put("lease/late", "x").then(leased("lease/dropped", dropped));
    ensure!(matches!(ledger.commit(late).await, Err(LedgerError::LeaseGone)));
    ensure!(ledger.get("lease/late").await?.is_none());
    wait_until_gone(ledger, "lease/kept").await
}

/// A reader that asks again after each answer sees every change once, in order, also the end of a lease.
pub async fn changes_have_no_holes(ledger: &impl Ledger) -> anyhow::Result<()> {
    let start = ledger.list("watch/", None, 10).await?.revision;
    let write = async {
        for number in 0..100 {
            committed(ledger.commit(put(&format!("watch/{}", number % 7), &number.to_string())).await?)?;
            committed(ledger.commit(put("watched/not", "x")).await?)?;
        }
        let lease = ledger.grant(Duration::from_secs(2)).await?;
        committed(ledger.commit(Transaction::default().then(leased("watch/leased", lease))).await?)?;
        anyhow::Ok(())
    };
    let read = async {
        let (mut after, mut seen) = (start, Vec::new());
        while !matches!(seen.last(), Some(Change::Deleted { .. })) {
            let changes = ledger.changes("watch/", after).await?;
            ensure!(!changes.changes.is_empty() && changes.until > after);
            after = changes.until;
            seen.extend(changes.changes);
        }
        Ok(seen)
    };
    let ((), seen) = tokio::try_join!(write, read)?;
    let values = seen.iter().filter_map(|change| match change {
        Change::Put(record) => Some(record.value.to_string()),
        Change::Deleted { .. } => None,
    });
    let expected = (0..100).map(|number| number.to_string()).chain(["leased".to_owned()]);
    ensure!(values.eq(expected), "{seen:?}");
    ensure!(seen.last() == Some(&Change::Deleted { key: Arc::from("watch/leased") }));
    ledger.compact(ledger.list("watch/", None, 1).await?.revision).await?;
    ensure!(matches!(ledger.changes("watch/", start).await, Err(LedgerError::Compacted { .. })));
    Ok(())
}

/// Pages show each key that stays exactly once, while others change.
pub async fn pages_show_every_key(ledger: &impl Ledger) -> anyhow::Result<()> {
    for start in (0..2000).step_by(100) {
        let keys = (start..start + 100).map(|number| Write::put(format!("page/{number:05}"), "x"));
        let transaction = Transaction { conditions: Vec::new(), writes: keys.collect() };
        committed(ledger.commit(transaction).await?)?;
    }
    ledger.commit(put("pages", "outside")).await?;
    let mut seen = BTreeSet::new();
    let mut after: Option<String> = None;
    for round in 0.. {
        let page = ledger.list("page/", after.as_deref(), 150).await?;
        let Some(last) = page.records.last() else { break };
        after = Some(last.key.to_string());
        for record in &page.records {
            ensure!(seen.insert(record.key.to_string()), "{} twice", record.key);
        }
        ledger.commit(put(&format!("page/00000-{round}"), "before the reader")).await?;
        ledger.commit(put(&format!("page/{:05}", 1999), &round.to_string())).await?;
    }
    ensure!(seen.len() == 2000, "{} keys", seen.len());
    Ok(())
}
