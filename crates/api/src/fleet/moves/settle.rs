//! Which node has a sandbox after a move, also if a crash cut the move off.

use std::time::Duration;

use sandling_engine::SandboxId;
use sandling_fleet::{Revision, Taken, Whereabouts};
use sandling_service::random;

use super::super::member::Fleet;
use crate::app::App;

pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What became of a departed sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Departed {
    Stayed,
    /// This node has it.
    Left(String),
}

/// What a departed sandbox waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The target has said that it has the sandbox.
    Moved,
    /// The sandbox goes on here, unless the target has it after all.
    TakenBack,
}

impl Fleet {
    /// Decides about a departed sandbox. Returns only when the ledger has answered, because until then either node may be
    /// the one that has it.
    pub(super) async fn settle(&self, app: &App, id: &SandboxId, expected: Expected) -> Departed {
        let token = random::hex::<16>();
        loop {
            match self.try_to_settle(id, expected, &token).await {
                Some(Departed::Stayed) => match app.engine.stay(id) {
                    Ok(()) => return Departed::Stayed,
                    Err(error) => log(id, &error),
                },
                Some(Departed::Left(node)) => match app.engine.leave_behind(id, &node).await {
                    Ok(()) => return Departed::Left(node),
                    Err(error) => log(id, &error),
                },
                None => {}
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn try_to_settle(&self, id: &SandboxId, expected: Expected, token: &str) -> Option<Departed> {
        let found = self.moves.whereabouts(self.membership.ledger(), id.as_str()).await.ok()?;
        if let Some(node) = self.elsewhere(&found) {
            return Some(Departed::Left(node));
        }
        if expected == Expected::Moved {
            return None;
        }
        match self.take(id, &found, token).await? {
            Taken::Mine => Some(Departed::Stayed),
            Taken::Other(now) => self.elsewhere(&now).map(Departed::Left),
            Taken::Fenced => None,
        }
    }

    /// The other node that has a sandbox which this node has created or has had.
    fn elsewhere(&self, found: &Whereabouts) -> Option<String> {
        let record = found.record.as_ref()?;
        (record.node != self.membership.name()).then(|| record.node.clone())
    }

    async fn take(&self, id: &SandboxId, found: &Whereabouts, token: &str) -> Option<Taken> {
        let generation = found.record.as_ref().map_or(0, |record| record.generation) + 1;
        self.moves.take(&self.membership, id.as_str(), found.at, generation, token).await.ok()
    }

    /// Becomes the node that has an arrival. False if another node has it. Returns only when the ledger has answered.
    pub(super) async fn claim(&self, id: &SandboxId, at: Option<Revision>, generation: u64, token: &str) -> bool {
        loop {
            match self.moves.take(&self.membership, id.as_str(), at, generation, token).await {
                Ok(Taken::Mine) => return true,
                Ok(Taken::Other(_)) => return false,
                Ok(Taken::Fenced) | Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }
}

pub(super) fn log(id: &SandboxId, error: &(dyn std::error::Error + 'static)) {
    tracing::error!(sandbox = %id, error, "a move cannot be finished; it is tried again");
}
