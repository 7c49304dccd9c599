//! What a node leaves behind that does not come back. One member, the reaper, closes it.

use super::state::Node;
use crate::claims::{Identity, Written, close_for};
use crate::clock::Clock;
use crate::host::{Ask, Host, Peers};
use crate::ledger::{Ledger, LedgerError};
use crate::permits;
use crate::records::{HELD, SANDBOXES, SandboxRecord, SandboxState, decode, held_prefix};

const PAGE: usize = 1000;

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    /// Every sandbox has a permit, so the holders of permits are all that can leave something behind.
    pub(super) async fn reap(&self, me: &Identity) -> Result<(), LedgerError> {
        if self.member.chosen_for("reaper").as_deref() != Some(self.member.name.as_str()) {
            self.state().missing.clear();
            return Ok(());
        }
        let mut holders = Vec::new();
        self.each_record(HELD, |key| holders.extend(key.split('/').nth(1).map(str::to_owned))).await?;
        holders.dedup();
        let now = self.member.clock.now();
        let due: Vec<_> = {
            let mut state = self.state();
            holders.retain(|holder| !self.member.is_member(holder));
            state.missing.retain(|node, _| holders.contains(node));
            let due =
                |node: &String| *state.missing.entry(node.clone()).or_insert(now) + self.settings.lost_after <= now;
            holders.into_iter().filter(due).collect()
        };
        for node in due {
            // A node that is cut off from the ledger only goes on running its sandboxes.
            if self.peers.ask(&node, Ask::Ping).await.is_err() {
                self.close_node(me, &node).await?;
            }
        }
        Ok(())
    }

    async fn each_record(&self, prefix: &str, mut with: impl FnMut(&str)) -> Result<(), LedgerError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.member.ledger.list(prefix, after.as_deref(), PAGE).await?;
            page.records.iter().for_each(|record| with(&record.key));
            match page.records.last() {
                Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
                _ => return Ok(()),
            }
        }
    }

    /// Sandboxes first, permits last, so that a quota never counts too few.
    async fn close_node(&self, me: &Identity, node: &str) -> Result<(), LedgerError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.member.ledger.list(SANDBOXES, after.as_deref(), PAGE).await?;
            for found in &page.records {
                let mut record: SandboxRecord = decode(found)?;
                record.state = match record.state {
                    SandboxState::Starting if record.owner == node => SandboxState::Abandoned,
                    SandboxState::Running if record.owner == node => {
                        SandboxState::Lost { cause: format!("node {node} is gone") }
                    }
                    _ => continue,
                };
                let closed = close_for(&self.member.ledger, me, &found.key, found.modified, &record).await?;
                if !matches!(closed, Written::Done(_)) {
                    return Ok(());
                }
            }
            match page.records.last() {
                Some(last) if page.records.len() == PAGE => after = Some(last.key.to_string()),
                _ => break,
            }
        }
        let prefix = held_prefix(node);
        for held in self.member.ledger.list(&prefix, None, 10_000).await?.records {
            permits::return_for(&self.member.ledger, me, node, &held.key[prefix.len()..]).await?;
        }
        Ok(())
    }
}
