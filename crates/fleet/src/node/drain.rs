//! Drain: each sandbox is hibernated here, gets a new owner in one transaction, and wakes there.
//!
//! A machine wakes only after its node has written the record. So a late write of the other side finds a newer revision.

use futures_util::future::join_all;

use super::state::{Node, Row};
use crate::claims::{Identity, Written, swap};
use crate::clock::Clock;
use crate::host::{Ask, Host, Peers, Reply};
use crate::ledger::{Ledger, LedgerError, Outcome, Revision, Transaction, Write};
use crate::records::{DrainRecord, SandboxRecord, drain_key, drain_progress_key, encode};

/// Asks a node to take no new sandboxes, and to move its own away unless they are to be kept.
pub async fn start_drain(ledger: &impl Ledger, node: &str, wanted: &DrainRecord) -> Result<Outcome, LedgerError> {
    // What an earlier drain has shown is out of date.
    let forget = Write::Delete { key: drain_progress_key(node) };
    ledger.commit(Transaction::default().then(Write::put(drain_key(node), encode(wanted))).then(forget)).await
}

pub async fn end_drain(ledger: &impl Ledger, node: &str) -> Result<Outcome, LedgerError> {
    ledger.commit(Transaction::default().then(Write::Delete { key: drain_key(node) })).await
}

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    pub(super) async fn move_away(&self, me: &Identity) {
        if self.member.is_draining() {
            let rows = self.state().rows.clone();
            join_all(rows.into_iter().take(self.settings.moves_at_once).map(|row| self.move_one(me, row))).await;
        }
    }

    async fn move_one(&self, me: &Identity, (key, row): (String, Row)) {
        let Some(target) = self.place(&row.record.template, &row.record.hardware, 0).await else { return };
        // From here on `end` does not find it.
        if !self.member.is_current(me) || self.state().rows.remove(&key).is_none() {
            return;
        }
        let generation = row.record.generation;
        self.host.hibernate(&key, generation);
        let ask = Ask::Adopt { key: key.clone(), at: row.revision, record: row.record.clone() };
        let moved = matches!(self.peers.ask(&target, ask).await, Ok(Reply::Moved));
        if moved {
            self.leave_behind(me, &key, generation);
        } else {
            self.keep_here(me, &key, &row).await;
        }
    }

    /// The sandbox goes on here. If the target has it after all, nothing of it stays.
    async fn keep_here(&self, me: &Identity, key: &str, row: &Row) {
        let mut record = row.record.clone();
        record.nonce = self.state().random.u64(..);
        match self.settle(me, || swap(&self.member.ledger, me, key, row.revision, &record)).await {
            Some(Written::Done(revision)) => {
                let generation = record.generation;
                if self.member.is_current(me) {
                    self.state().rows.insert(key.to_owned(), Row { record, revision });
                }
                self.host.release(key, generation);
            }
            Some(Written::Other(..)) => self.leave_behind(me, key, record.generation),
            // Recovery decides.
            Some(Written::Fenced) | None => {}
        }
    }

    fn leave_behind(&self, me: &Identity, key: &str, generation: u32) {
        self.host.discard(key, generation);
        let workspace = key.split('/').nth(1).unwrap_or_default();
        self.state().permits.give_back(workspace, me.epoch);
    }

    /// As the target of a move.
    pub(super) async fn adopt(&self, key: &str, at: Revision, mut record: SandboxRecord) -> Reply {
        let workspace = key.split('/').nth(1).unwrap_or_default();
        let Some(me) = self.member.writer().filter(|_| !self.member.is_draining()) else {
            return Reply::Refused("the node takes no sandboxes now");
        };
        if !matches!(self.take_permit(&me, workspace).await, Ok(true)) {
            return Reply::Refused("the node has no permit");
        }
        record.owner.clone_from(&me.node);
        record.epoch = me.epoch.0;
        record.generation += 1;
        record.nonce = self.state().random.u64(..);
        let generation = record.generation;
        if !self.note(&me, key, generation) {
            return Reply::Refused("the node has lost its lease");
        }
        match self.settle(&me, || swap(&self.member.ledger, &me, key, at, &record)).await {
            Some(Written::Done(revision)) if self.member.is_current(&me) => {
                self.host.receive(key, generation);
                self.state().rows.insert(key.to_owned(), Row { record, revision });
                self.host.release(key, generation);
                Reply::Moved
            }
            Some(Written::Other(found, _)) => {
                self.forget_note(key, generation, &found);
                self.state().permits.give_back(workspace, me.epoch);
                Reply::Refused("the sandbox has changed")
            }
            _ => Reply::Refused("the node has lost its lease"),
        }
    }
}
