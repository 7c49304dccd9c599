//! Passes with which machines join a fleet. Each is valid once and for a limited time.
//!
//! The nodes share a key. A pass carries a proof that only this key can make, so nobody can forge a pass by writing to the
//! ledger. The ledger only remembers the passes that were used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::ledger::{Expect, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::membership::Membership;

const VALID_FOR: Duration = Duration::from_secs(3600);
const KEY_CONTEXT: &str = "sandling fleet join pass 1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPass {
    id: String,
    /// In seconds since 1970.
    valid_until: u64,
    proof: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("the join token is not from this fleet")]
    Foreign,
    #[error("the join token has expired; `sandling fleet token` prints a new one")]
    Expired,
    #[error("the join token was used before; `sandling fleet token` prints a new one")]
    Used,
    #[error("the node has lost its lease; try again in a few seconds")]
    Fenced,
    #[error("the node cannot reach the fleet's etcd")]
    Ledger(#[from] LedgerError),
}

impl JoinPass {
    /// A new pass. `secret` is what only the fleet's nodes know, `id` is random, `now` the seconds since 1970.
    pub fn issue(secret: &[u8], id: String, now: u64) -> Self {
        let valid_until = now + VALID_FOR.as_secs();
        let proof = proof(secret, &id, valid_until).to_hex().to_string();
        Self { id, valid_until, proof }
    }

    /// Whether the fleet has issued the pass and it has not expired: how many seconds are left.
    pub fn check(&self, secret: &[u8], now: u64) -> Result<u64, PassError> {
        let given = blake3::Hash::from_hex(&self.proof).map_err(|_| PassError::Foreign)?;
        // This comparison takes the same time wherever the two differ.
        if proof(secret, &self.id, self.valid_until) != given {
            return Err(PassError::Foreign);
        }
        self.valid_until.checked_sub(now).filter(|left| *left > 0).ok_or(PassError::Expired)
    }

    /// Uses the pass up. It is valid if this returns no error, and never again.
    pub async fn redeem<L: Ledger, C: Clock>(
        &self,
        secret: &[u8],
        now: u64,
        membership: &Membership<L, C>,
    ) -> Result<(), PassError> {
        let left = self.check(secret, now)?;
        let me = membership.writer().ok_or(PassError::Fenced)?;
        // The mark must outlive the pass, also by the clock of a node that is behind.
        let lease = membership.ledger().grant(Duration::from_secs(left) + VALID_FOR).await?;
        let key = format!("joined/{}", self.id);
        let put = Write::Put { key: key.clone(), value: String::new(), lease: Some(lease) };
        let mark = me.fence(Transaction::default().when(&key, Expect::Absent).then(put));
        match membership.ledger().commit(mark).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Refused(current) if matches!(current.first(), Some(Some(_))) => Err(PassError::Used),
            Outcome::Refused(_) => Err(PassError::Fenced),
        }
    }
}

fn proof(secret: &[u8], id: &str, valid_until: u64) -> blake3::Hash {
    let key = blake3::derive_key(KEY_CONTEXT, secret);
    blake3::keyed_hash(&key, format!("{valid_until} {id}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};
    use crate::records::node_key;

    const NOW: u64 = 1_800_000_000;

    #[tokio::test]
    async fn a_pass_is_good_once_through_any_node() {
        let ledger = ModelLedger::default();
        let (a, b) = (member("a", &ledger), member("b", &ledger));
        register(&a).await;
        register(&b).await;
        let pass = JoinPass::issue(b"secret", "one".to_owned(), NOW);
        let (one, other) = tokio::join!(pass.redeem(b"secret", NOW, &a), pass.redeem(b"secret", NOW, &b));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Used)));
        JoinPass::issue(b"secret", "other".to_owned(), NOW).redeem(b"secret", NOW, &a).await.unwrap();
    }

    #[tokio::test]
    async fn forged_changed_and_expired_passes_are_refused() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        register(&a).await;
        let pass = JoinPass::issue(b"secret", "one".to_owned(), NOW);
        let refusal = async |pass: &JoinPass, now| pass.redeem(b"secret", now, &a).await.unwrap_err();
        let of_others = JoinPass::issue(b"other", "one".to_owned(), NOW);
        let longer = JoinPass { valid_until: pass.valid_until + 1, ..pass.clone() };
        let renamed = JoinPass { id: "two".to_owned(), ..pass.clone() };
        let empty = JoinPass { proof: String::new(), ..pass.clone() };
        for forged in [of_others, longer, renamed, empty] {
            assert!(matches!(refusal(&forged, NOW).await, PassError::Foreign), "{forged:?}");
        }
        assert!(matches!(refusal(&pass, NOW + VALID_FOR.as_secs()).await, PassError::Expired));
        pass.redeem(b"secret", NOW + VALID_FOR.as_secs() - 1, &a).await.unwrap();
    }

    #[tokio::test]
    async fn a_node_that_lost_its_lease_lets_nobody_join() {
        let ledger = ModelLedger::default();
        let a = member("a", &ledger);
        let pass = JoinPass::issue(b"secret", "one".to_owned(), NOW);
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Fenced)));
        register(&a).await;
        ledger.commit(Transaction::default().then(Write::Delete { key: node_key("a") })).await.unwrap();
        assert!(matches!(pass.redeem(b"secret", NOW, &a).await, Err(PassError::Fenced)));
    }
}
