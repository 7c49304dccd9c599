//! What nodes of different versions of Sandling speak with each other.
//!
//! The number grows when a node of the version before would misunderstand a record or a message. A node speaks the protocol of
//! its version and that of the version before, so a fleet can be upgraded one node after another. What only newer nodes
//! understand waits until [`behind`](crate::Membership::behind) finds no member that does not. Everything else needs no number:
//! nodes ignore fields that they do not know and keep them in records.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// The protocols that a node speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocol {
    pub current: u32,
    pub oldest: u32,
}

/// Two nodes have no protocol in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{older} is too old for {newer}: they speak the nodes' protocol {theirs} and {ours}; upgrade Sandling on {older}"
)]
pub struct Incompatible {
    pub older: String,
    pub newer: String,
    theirs: u32,
    ours: u32,
}

impl Protocol {
    /// What this program speaks. In 2, nodes tell each other which etcd they use, know sandboxes with failover, and copy volumes.
    pub const OWN: Self = Self { current: 2, oldest: 1 };

    /// From this number on, nodes know that a fleet can get another etcd.
    pub const REBUILDS: u32 = 2;

    /// From this number on, nodes know sandboxes with failover. Earlier ones refuse to create them, and would move them without.
    pub const FAILOVER: u32 = 2;

    /// From this number on, nodes copy volumes to each other.
    pub const VOLUME_COPIES: u32 = 2;

    /// What a node speaks that says nothing about it.
    pub const FIRST: Self = Self { current: 1, oldest: 1 };

    /// Whether this program can speak with a node that speaks this.
    pub fn check(self, node: &str) -> Result<(), Incompatible> {
        let (them, us) = (format!("node {node}"), "this node".to_owned());
        let (older, newer, theirs, ours) = match self.compare(Self::OWN) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => (them, us, self.current, Self::OWN.oldest),
            Ordering::Greater => (us, them, Self::OWN.current, self.oldest),
        };
        Err(Incompatible { older, newer, theirs, ours })
    }

    /// Which one is too old for the other. Equal if they have a protocol in common.
    fn compare(self, other: Self) -> Ordering {
        match (self.current < other.oldest, other.current < self.oldest) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// Such as `1-2`.
    pub fn text(self) -> String {
        format!("{}-{}", self.oldest, self.current)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (oldest, current) = text.split_once('-')?;
        Some(Self { oldest: oldest.parse().ok()?, current: current.parse().ok()? })
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self::FIRST
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Ledger, ModelLedger, Transaction, Write};
    use crate::membership::tests::{member, register};
    use crate::records::{NodeRecord, node_key};

    #[tokio::test(start_paused = true)]
    async fn what_one_member_does_not_speak_waits_for_it() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        register(&a).await;
        let changes = async {
            let old = r#"{"fingerprint":"b","hardware":"","draining":false}"#;
            let joins = Write::put(node_key("b"), old);
            for (write, behind) in [(joins, Some("b")), (Write::Delete { key: node_key("b") }, None)] {
                ledger.commit(Transaction::default().then(write)).await.unwrap();
                while a.behind(Protocol::OWN.current).as_deref() != behind {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::select! {
            () = changes => {}
            () = a.watch_members() => {}
        }
    }

    #[test]
    fn nodes_of_two_versions_in_a_row_speak_with_each_other() {
        let Protocol { current, oldest } = Protocol::OWN;
        for fine in [
            Protocol::OWN,
            Protocol { current: oldest, oldest: oldest.saturating_sub(1) },
            Protocol { current: current + 1, oldest: current },
        ] {
            assert_eq!(fine.check("b"), Ok(()), "{fine:?}");
        }
        let newer = Protocol { current: current + 2, oldest: current + 1 }.check("b").unwrap_err();
        assert_eq!((&*newer.older, &*newer.newer), ("this node", "node b"));
        let older = Protocol { current: oldest - 1, oldest: 0 }.check("b").unwrap_err();
        assert!(older.to_string().ends_with("upgrade Sandling on node b"), "{older}");
    }

    #[test]
    fn a_protocol_is_read_as_it_is_written() {
        assert_eq!(Protocol::parse(&Protocol::OWN.text()), Some(Protocol::OWN));
        for bad in ["", "1", "1-", "a-b", "-2"] {
            assert_eq!(Protocol::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn records_of_other_versions_can_be_read_and_lose_nothing() {
        let old = r#"{"fingerprint":"f","hardware":"h","draining":false}"#;
        let old: NodeRecord = serde_json::from_str(old).unwrap();
        assert_eq!(old.protocol, Protocol::FIRST);
        let new = r#"{"fingerprint":"f","hardware":"h","draining":false,"protocol":{"current":3,"oldest":2,"x":1},"later":[1]}"#;
        let new: NodeRecord = serde_json::from_str(new).unwrap();
        assert_eq!(new.protocol, Protocol { current: 3, oldest: 2 });
        assert!(serde_json::to_string(&new).unwrap().contains(r#""later":[1]"#));
    }
}
