//! A node's lease and epoch, and what it knows of the others.

use std::time::Duration;

use super::state::{Node, Standing};
use crate::claims::Identity;
use crate::clock::Clock;
use crate::host::{Host, Peers};
use crate::ledger::{Expect, LeaseId, Ledger, LedgerError, Outcome, Transaction, Write};
use crate::permits::{self, Share};
use crate::records::{NODES, NodeRecord, decode, drain_key, encode, node_key};

const PAGE: usize = 1000;

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    pub(super) async fn keep_membership(&self) {
        loop {
            match self.register().await {
                Ok(Some(me)) => tokio::join!(self.renew_until_lost(&me), self.recover_until_done(&me)),
                Ok(None) | Err(_) => (self.clock.sleep(self.settings.renew_every).await, ()),
            };
        }
    }

    /// Begins a new epoch. `None` if another machine has this name, or the outcome is unclear.
    async fn register(&self) -> Result<Option<Identity>, LedgerError> {
        let key = node_key(&self.name);
        if let Some(found) = self.ledger.get(&key).await? {
            if decode::<NodeRecord>(&found)?.fingerprint != self.host.fingerprint() {
                return Ok(None);
            }
            let end_epoch = Transaction::default().when(&key, Expect::Modified(found.modified));
            self.ledger.commit(end_epoch.then(Write::Delete { key: key.clone() })).await?;
        }
        let draining = self.ledger.get(&drain_key(&self.name)).await?.is_some();
        let sent = self.clock.now();
        let lease = self.ledger.grant(self.settings.lease_ttl).await?;
        let put = Write::Put { key: key.clone(), value: self.node_record(draining), lease: Some(lease) };
        let outcome = self.ledger.commit(Transaction::default().when(&key, Expect::Absent).then(put)).await?;
        let Outcome::Committed(epoch) = outcome else { return Ok(None) };
        let me = Identity { node: self.name.clone(), epoch };
        let write_until = sent + self.settings.write_within;
        let mut state = self.state();
        state.draining = draining;
        state.standing = Some(Standing { me: me.clone(), lease, write_until, ready: false });
        Ok(Some(me))
    }

    fn node_record(&self, draining: bool) -> String {
        let (fingerprint, hardware) = (self.host.fingerprint(), self.hardware.clone());
        encode(&NodeRecord { fingerprint, hardware, draining, unknown: Default::default() })
    }

    async fn renew_until_lost(&self, me: &Identity) {
        let Some(lease) = self.state().standing.as_ref().map(|standing| standing.lease) else { return };
        while self.is_current(me) {
            self.clock.sleep(self.settings.renew_every).await;
            let sent = self.clock.now();
            match self.ledger.renew(lease).await {
                Ok(()) => self.extend(sent + self.settings.write_within),
                Err(LedgerError::LeaseGone) => self.state().standing = None,
                Err(_) => {}
            }
        }
    }

    fn extend(&self, write_until: Duration) {
        if let Some(standing) = &mut self.state().standing {
            standing.write_until = standing.write_until.max(write_until);
        }
    }

    pub(super) async fn watch_members(&self) {
        loop {
            if self.follow_members().await.is_err() {
                self.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    async fn follow_members(&self) -> Result<(), LedgerError> {
        let mut page = self.ledger.list(NODES, None, PAGE).await?;
        let mut after = page.revision;
        let mut records = std::mem::take(&mut page.records);
        while let Some(last) = records.last().filter(|_| records.len() % PAGE == 0) {
            let page = self.ledger.list(NODES, Some(&last.key.clone()), PAGE).await?;
            if page.records.is_empty() {
                break;
            }
            records.extend(page.records);
        }
        self.state().table.replace(records);
        loop {
            let changes = self.ledger.changes(NODES, after).await?;
            after = changes.until;
            let mut state = self.state();
            changes.changes.into_iter().for_each(|change| state.table.apply(change));
        }
    }

    pub(super) async fn keep_up(&self) {
        loop {
            self.clock.sleep(self.settings.upkeep_every).await;
            if let Some(me) = self.writer() {
                // What fails now is tried again in the next round.
                let _ = self.return_idle_permits(&me).await;
                let _ = self.follow_drain(&me).await;
                self.move_away(&me).await;
                let _ = self.reap(&me).await;
            }
        }
    }

    async fn return_idle_permits(&self, me: &Identity) -> Result<(), LedgerError> {
        let _turn = self.permits_turn.lock().await;
        let idle = self.state().permits.drop_idle(self.clock.now(), self.settings.permits_idle_after);
        for (workspace, keep) in idle {
            if let Share::Count(held) = permits::keep(&self.ledger, me, &workspace, keep).await? {
                self.state().permits.set_held(&workspace, held, me.epoch);
            }
        }
        Ok(())
    }

    /// Shows in the node's record what the operator wants.
    async fn follow_drain(&self, me: &Identity) -> Result<(), LedgerError> {
        let wanted = self.ledger.get(&drain_key(&self.name)).await?.is_some();
        let lease: Option<LeaseId> = self.state().standing.as_ref().map(|standing| standing.lease);
        if wanted != self.state().draining {
            let put = Write::Put { key: node_key(&self.name), value: self.node_record(wanted), lease };
            if let Outcome::Committed(_) = self.ledger.commit(me.fence(Transaction::default().then(put))).await? {
                self.state().draining = wanted;
            }
        }
        Ok(())
    }
}
