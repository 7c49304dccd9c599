//! After a restart, or after a lost lease: the node compares what its host knows with the ledger.

use std::time::Duration;

use super::state::{Node, Row};
use crate::claims::{Identity, Written, swap};
use crate::clock::Clock;
use crate::host::{Host, Known, Peers, Presence};
use crate::ledger::{Ledger, LedgerError};
use crate::permits::{self, Permits, Share};
use crate::records::{SandboxRecord, SandboxState, decode, held_prefix};

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    pub(super) async fn recover_until_done(&self, me: &Identity) {
        while self.member.is_current(me) {
            match self.recover(me).await {
                Ok(true) => break,
                _ => self.member.clock.sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Permits first: if another node has returned them already, it has closed all our sandboxes before.
    async fn recover(&self, me: &Identity) -> Result<bool, LedgerError> {
        {
            let mut state = self.state();
            state.permits = Permits::new(me.epoch);
            state.rows.clear();
        }
        let prefix = held_prefix(&self.member.name);
        for held in self.member.ledger.list(&prefix, None, 10_000).await?.records {
            let workspace = &held.key[prefix.len()..];
            let Share::Count(count) = permits::adopt(&self.member.ledger, me, workspace).await? else {
                return Ok(false);
            };
            self.state().permits.set_held(workspace, count, me.epoch);
        }
        for known in self.host.known() {
            if !self.recover_one(me, &known).await? {
                return Ok(false);
            }
        }
        self.member.set_ready(me);
        Ok(true)
    }

    /// False if the record changed meanwhile or the epoch is over.
    async fn recover_one(&self, me: &Identity, known: &Known) -> Result<bool, LedgerError> {
        let Known { key, generation, presence } = known;
        let found = self.member.ledger.get(key).await?;
        let record = found.as_ref().map(decode::<SandboxRecord>).transpose()?;
        let mine = |record: &SandboxRecord| record.owner == self.member.name && record.generation == *generation;
        let (Some(found), Some(mut record)) = (found, record.filter(mine)) else {
            self.host.discard(key, *generation);
            return Ok(true);
        };
        record.epoch = me.epoch.0;
        record.nonce = self.state().random.u64(..);
        record.state = match (record.state, presence) {
            (SandboxState::Running, Presence::Machine | Presence::Hibernated) => SandboxState::Running,
            (SandboxState::Running, Presence::Noted) => {
                SandboxState::Lost { cause: format!("node {} restarted without the machine", self.member.name) }
            }
            (SandboxState::Starting, _) => SandboxState::Abandoned,
            (SandboxState::Ended | SandboxState::Lost { .. } | SandboxState::Abandoned, _) => {
                self.host.discard(key, *generation);
                return Ok(true);
            }
        };
        let Written::Done(revision) = swap(&self.member.ledger, me, key, found.modified, &record).await? else {
            return Ok(false);
        };
        if record.state == SandboxState::Running {
            let workspace = key.split('/').nth(1).unwrap_or_default();
            self.state().permits.count_running(workspace);
            self.state().rows.insert(key.clone(), Row { record, revision });
            self.host.release(key, *generation);
        } else {
            self.host.discard(key, *generation);
        }
        Ok(true)
    }
}
