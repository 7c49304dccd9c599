//! Which node creates the sandbox of an idempotency key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::membership::Membership;
use crate::records::{create_key, decode, encode};

/// At least as long as nodes remember idempotency keys.
const KEPT_FOR: Duration = Duration::from_secs(48 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assigned {
    Node(String),
    /// No node has the key, and none was proposed.
    Nobody,
    /// This node has lost its lease.
    Fenced,
}

#[derive(Serialize, Deserialize)]
struct CreateRecord {
    node: String,
}

/// The node that has this key. The first proposal wins and stays, so a retry through any node reaches the node that may
/// have created the sandbox already.
pub async fn assign<L: Ledger, C: Clock>(
    membership: &Membership<L, C>,
    workspace: &str,
    idempotency_key: &str,
    proposed: Option<&str>,
) -> Result<Assigned, LedgerError> {
    let key = create_key(workspace, idempotency_key);
    let ledger = membership.ledger();
    if let Some(found) = ledger.get(&key).await? {
        return Ok(Assigned::Node(decode::<CreateRecord>(&found)?.node));
    }
    let Some(node) = proposed else { return Ok(Assigned::Nobody) };
    let Some(me) = membership.writer() else { return Ok(Assigned::Fenced) };
    let lease = Some(ledger.grant(KEPT_FOR).await?);
    let value = encode(&CreateRecord { node: node.to_owned() });
    let claim = Transaction::default().when(&key, Expect::Absent).then(Write::Put { key: key.clone(), value, lease });
    match ledger.commit(me.fence(claim)).await? {
        Outcome::Committed(_) => Ok(Assigned::Node(node.to_owned())),
        Outcome::Refused(current) => match current.first() {
            Some(Some(found)) => Ok(Assigned::Node(decode::<CreateRecord>(found)?.node)),
            _ => Ok(Assigned::Fenced),
        },
    }
}

/// Whether this node has the key now.
pub async fn is_assigned<L: Ledger, C: Clock>(
    membership: &Membership<L, C>,
    workspace: &str,
    idempotency_key: &str,
) -> Result<bool, LedgerError> {
    let found = membership.ledger().get(&create_key(workspace, idempotency_key)).await?;
    let record = found.as_ref().map(decode::<CreateRecord>).transpose()?;
    Ok(record.is_some_and(|record| record.node == membership.name()))
}

/// Gives up a key of this node under which nothing was created, so that another node can have it.
///
/// The caller lets no create with this key run here meanwhile, and asks [`is_assigned`] before the next one. After an error
/// the outcome is unknown: then the caller tries again, because a late write could take the key away from a create.
pub async fn release<L: Ledger, C: Clock>(
    membership: &Membership<L, C>,
    workspace: &str,
    idempotency_key: &str,
) -> Result<(), LedgerError> {
    let key = create_key(workspace, idempotency_key);
    let ledger = membership.ledger();
    let Some(found) = ledger.get(&key).await? else { return Ok(()) };
    if decode::<CreateRecord>(&found)?.node != membership.name() {
        return Ok(());
    }
    // No fence: what this node has not created stays that way when its lease is lost. If the record has changed, an earlier
    // attempt has succeeded.
    let release = Transaction::default().when(&key, Expect::Modified(found.modified)).then(Write::Delete { key });
    ledger.commit(release).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};
    use crate::records::node_key;

    #[tokio::test]
    async fn the_first_proposal_stays_whoever_asks() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        assert_eq!(assign(&a, "w", "k", None).await.unwrap(), Assigned::Nobody);
        let (one, other) = tokio::join!(assign(&a, "w", "k", Some("a")), assign(&b, "w", "k", Some("b")));
        assert_eq!(one.unwrap(), other.unwrap());
        assert_eq!(assign(&b, "w", "other", Some("b")).await.unwrap(), Assigned::Node("b".to_owned()));
        assert_eq!(assign(&a, "w", "other", Some("a")).await.unwrap(), Assigned::Node("b".to_owned()));
    }

    #[tokio::test]
    async fn only_its_node_gives_up_a_key_and_another_can_have_it_then() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        assert_eq!(assign(&a, "w", "k", Some("b")).await.unwrap(), Assigned::Node("b".to_owned()));
        assert!(!is_assigned(&a, "w", "k").await.unwrap() && is_assigned(&b, "w", "k").await.unwrap());
        release(&a, "w", "k").await.unwrap();
        assert!(is_assigned(&b, "w", "k").await.unwrap());
        for _ in 0..2 {
            release(&b, "w", "k").await.unwrap();
            assert!(!is_assigned(&b, "w", "k").await.unwrap());
        }
        assert_eq!(assign(&b, "w", "k", Some("a")).await.unwrap(), Assigned::Node("a".to_owned()));
    }

    #[tokio::test]
    async fn a_node_without_its_lease_assigns_nothing() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        assert_eq!(assign(&a, "w", "k", Some("a")).await.unwrap(), Assigned::Fenced);
        register(&a).await;
        ledger.commit(Transaction::default().then(Write::Delete { key: node_key("a") })).await.unwrap();
        assert_eq!(assign(&a, "w", "k", Some("a")).await.unwrap(), Assigned::Fenced);
        assert_eq!(ledger.get(&create_key("w", "k")).await.unwrap(), None);
    }
}
