//! A server whose home is in no fleet any more, but has moves that were under way, or sandboxes with failover.

use std::error::Error;
use std::sync::Arc;

use super::instance::Engine;
use super::moving::MoveError;
use crate::model::SandboxId;

impl Engine {
    /// Ends the moves that nobody decides about any more. Without the fleet, nobody knows which node has such a sandbox, so
    /// this home keeps it: a copy too many does less harm than one too few.
    pub fn end_moves_without_fleet(self: &Arc<Self>) {
        for id in self.to_confirm() {
            report(&id, self.confirm(&id, None).map_err(Into::into));
        }
        for id in self.departed() {
            report(&id, self.stay(&id));
        }
        for (id, _) in self.arrivals() {
            // It does not wake by itself: its old node may have taken it back.
            report(&id, self.admit_arrival(&id).map(drop));
        }
    }
}

fn report(id: &SandboxId, ended: Result<(), MoveError>) {
    match ended {
        Ok(()) => tracing::warn!(
            sandbox = %id,
            "this home has left its fleet while another node could get the sandbox; it stays here, and another node may have it, too"
        ),
        Err(error) => tracing::error!(
            sandbox = %id,
            error = &error as &dyn Error,
            "this home has left its fleet while another node could get the sandbox, and it cannot be used; restart the server"
        ),
    }
}
