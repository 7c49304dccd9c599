//! What a member does every few seconds.

use super::state::Node;
use crate::claims::Identity;
use crate::clock::Clock;
use crate::host::{Host, Peers};
use crate::ledger::{Ledger, LedgerError};
use crate::permits::{self, Share};

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    pub(super) async fn keep_up(&self) {
        loop {
            self.member.clock.sleep(self.settings.upkeep_every).await;
            if let Some(me) = self.member.writer() {
                // What fails now is tried again in the next round.
                let _ = self.return_idle_permits(&me).await;
                let _ = self.member.follow_drain(&me).await;
                self.move_away(&me).await;
                let _ = self.reap(&me).await;
            }
        }
    }

    async fn return_idle_permits(&self, me: &Identity) -> Result<(), LedgerError> {
        let _turn = self.permits_turn.lock().await;
        let idle = self.state().permits.drop_idle(self.member.clock.now(), self.settings.permits_idle_after);
        for (workspace, keep) in idle {
            if let Share::Count(held) = permits::keep(&self.member.ledger, me, &workspace, keep).await? {
                self.state().permits.set_held(&workspace, held, me.epoch);
            }
        }
        Ok(())
    }
}
