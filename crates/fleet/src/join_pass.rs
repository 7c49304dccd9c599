//! Passes with which machines join a fleet. Each is valid for a number of machines and for a limited time.
//!
//! The nodes share a key. A pass carries a proof that only this key can make, so nobody can forge a pass by writing to the
//! ledger. The ledger only remembers how often a pass was used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::membership::Membership;
use crate::records::{decode, encode};

const VALID_FOR: Duration = Duration::from_secs(3600);
const KEY_CONTEXT: &str = "sandling fleet join pass 2";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPass {
    id: String,
    /// How many machines may use it.
    machines: u32,
    /// In seconds since 1970.
    valid_until: u64,
    proof: String,
}

/// How many machines have used a pass.
#[derive(Default, Serialize, Deserialize)]
struct Uses {
    count: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("the join token is not from this fleet")]
    Foreign,
    #[error("the join token has expired; `sandling fleet token` prints a new one")]
    Expired,
    #[error("the join token is used up; `sandling fleet token` prints a new one")]
    Used,
    #[error("the node has lost its lease; try again in a few seconds")]
    Fenced,
    #[error("the node cannot reach the fleet's etcd")]
    Ledger(#[from] LedgerError),
}

impl JoinPass {
    /// A new pass. `secret` is what only the fleet's nodes know, `id` is random, `now` the seconds since 1970.
    pub fn issue(secret: &[u8], id: String, machines: u32, now: u64) -> Self {
        let mut pass = Self { id, machines, valid_until: now + VALID_FOR.as_secs(), proof: String::new() };
        pass.proof = pass.expected_proof(secret).to_hex().to_string();
        pass
    }

    fn expected_proof(&self, secret: &[u8]) -> blake3::Hash {
        let key = blake3::derive_key(KEY_CONTEXT, secret);
        blake3::keyed_hash(&key, format!("{} {} {}", self.valid_until, self.machines, self.id).as_bytes())
    }

    /// Whether the fleet has issued the pass and it has not expired: how many seconds are left.
    pub fn check(&self, secret: &[u8], now: u64) -> Result<u64, PassError> {
        let given = blake3::Hash::from_hex(&self.proof).map_err(|_| PassError::Foreign)?;
        // This comparison takes the same time wherever the two differ.
        if self.expected_proof(secret) != given {
            return Err(PassError::Foreign);
        }
        self.valid_until.checked_sub(now).filter(|left| *left > 0).ok_or(PassError::Expired)
    }

    /// Counts one use of the pass. It is valid if this returns no error. After an error of the ledger, the use may be
    /// counted.
    pub async fn redeem<L: Ledger, C: Clock>(
        &self,
        secret: &[u8],
        now: u64,
        membership: &Membership<L, C>,
    ) -> Result<(), PassError> {
        let left = self.check(secret, now)?;
        // The record must outlive the pass, also by the clock of a node that is behind.
        let lease = membership.ledger().grant(Duration::from_secs(left) + VALID_FOR).await?;
        let key = format!("joined/{}", self.id);
        let mut before = membership.ledger().get(&key).await?;
        loop {
            let me = membership.writer().ok_or(PassError::Fenced)?;
            let uses = before.as_ref().map(decode::<Uses>).transpose()?.unwrap_or_default();
            if uses.count >= self.machines {
                return Err(PassError::Used);
            }
            let unchanged = before.as_ref().map_or(Expect::Absent, |record| Expect::Modified(record.modified));
            let value = encode(&Uses { count: uses.count + 1 });
            let put = Write::Put { key: key.clone(), value, lease: Some(lease) };
            let count = me.fence(Transaction::default().when(&key, unchanged).then(put));
            let Outcome::Refused(mut current) = membership.ledger().commit(count).await? else { return Ok(()) };
            let current = if current.is_empty() { None } else { current.swap_remove(0) };
            if current == before {
                return Err(PassError::Fenced);
            }
            // Another machine was faster.
            before = current;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};
    use crate::records::node_key;

    const NOW: u64 = 1_800_000_000;

    fn issue(machines: u32) -> JoinPass {
        JoinPass::issue(b"secret", "one".to_owned(), machines, NOW)
    }

    #[tokio::test]
    async fn a_pass_is_good_once_through_any_node() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let pass = issue(1);
        let (one, other) = tokio::join!(pass.redeem(b"secret", NOW, &a), pass.redeem(b"secret", NOW, &b));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Used)));
        JoinPass::issue(b"secret", "other".to_owned(), 1, NOW).redeem(b"secret", NOW, &a).await.unwrap();
    }

    #[tokio::test]
    async fn a_pass_for_several_machines_counts_each_use_once() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let pass = issue(5);
        let uses = (0..8).map(|number| pass.redeem(b"secret", NOW, if number % 2 == 0 { &a } else { &b }));
        let (valid, refused): (Vec<_>, Vec<_>) = join_all(uses).await.into_iter().partition(Result::is_ok);
        assert_eq!((valid.len(), refused.len()), (5, 3));
        assert!(refused.iter().all(|refusal| matches!(refusal, Err(PassError::Used))), "{refused:?}");
    }

    #[tokio::test]
    async fn forged_changed_and_expired_passes_are_refused() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        register(&a).await;
        let pass = issue(1);
        let refusal = async |pass: &JoinPass, now| pass.redeem(b"secret", now, &a).await.unwrap_err();
        let of_others = JoinPass::issue(b"other", "one".to_owned(), 1, NOW);
        let for_more = JoinPass { machines: 2, ..pass.clone() };
        let longer = JoinPass { valid_until: pass.valid_until + 1, ..pass.clone() };
        let renamed = JoinPass { id: "two".to_owned(), ..pass.clone() };
        let empty = JoinPass { proof: String::new(), ..pass.clone() };
        for forged in [of_others, for_more, longer, renamed, empty] {
            assert!(matches!(refusal(&forged, NOW).await, PassError::Foreign), "{forged:?}");
        }
        assert!(matches!(refusal(&pass, NOW + VALID_FOR.as_secs()).await, PassError::Expired));
        pass.redeem(b"secret", NOW + VALID_FOR.as_secs() - 1, &a).await.unwrap();
    }

    #[tokio::test]
    async fn a_node_that_lost_its_lease_lets_nobody_join() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        let pass = issue(1);
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Fenced)));
        register(&a).await;
        ledger.commit(Transaction::default().then(Write::Delete { key: node_key("a") })).await.unwrap();
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Fenced)));
    }
}
