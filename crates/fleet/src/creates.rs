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
