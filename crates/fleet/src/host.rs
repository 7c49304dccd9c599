//! What a node needs of its own machine and of the other nodes.

use std::future::Future;

use crate::ledger::Revision;
use crate::records::{SandboxRecord, SandboxState};

/// What the host's disk and processes say about one generation of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub key: String,
    pub generation: u32,
    pub presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Only the note that it was meant to start.
    Noted,
    Machine,
    Hibernated,
}

/// The machines of one node. Notes are durable. A sandbox is named by its key and its generation, so that a late step of
/// an earlier generation never touches a later one.
pub trait Host: Send + Sync {
    /// What tells this machine from every other, whatever their names.
    fn fingerprint(&self) -> String;
    /// Written before the ledger is asked, so that a restarted node knows what it may own.
    fn note(&self, key: &str, generation: u32);
    /// Starts a machine that nobody can use yet. False if the host cannot, or if the sandbox was discarded meanwhile:
    /// a start may last longer than an epoch, and the recovery after it discards what was only starting.
    fn start(&self, key: &str, generation: u32) -> impl Future<Output = bool> + Send;
    /// Lets commands into the machine, and wakes it if it is hibernated.
    fn release(&self, key: &str, generation: u32);
    fn hibernate(&self, key: &str, generation: u32);
    /// Takes over what another node has hibernated.
    fn receive(&self, key: &str, generation: u32);
    /// Ends the machine and keeps the note.
    fn stop(&self, key: &str, generation: u32);
    /// Ends the machine and removes the note.
    fn discard(&self, key: &str, generation: u32);
    fn known(&self) -> Vec<Known>;
    /// What a sandbox of the template would cost here, or `None` if there is no room.
    fn cost(&self, template: &str) -> Option<u32>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    pub workspace: String,
    pub idempotency_key: String,
    pub digest: String,
    pub template: String,
    pub hardware: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Ping,
    Offer {
        template: String,
    },
    Create(CreateRequest),
    /// To the owner: what became of this sandbox?
    Find {
        key: String,
    },
    /// To the target of a move: the source has hibernated the sandbox.
    Adopt {
        key: String,
        at: Revision,
        record: SandboxRecord,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Pong,
    Cost(u32),
    Running {
        key: String,
        owner: String,
    },
    Elsewhere {
        key: String,
        owner: String,
    },
    /// The sandbox of this create has ended or is lost.
    Closed(SandboxState),
    /// The same idempotency key with another request.
    Conflict,
    QuotaExceeded,
    /// Nothing is decided. A retry with the same key is safe.
    Refused(&'static str),
    Moved,
}

#[derive(Debug, thiserror::Error)]
#[error("the node did not answer")]
pub struct Unreachable;

pub trait Peers: Send + Sync {
    fn ask(&self, node: &str, ask: Ask) -> impl Future<Output = Result<Reply, Unreachable>> + Send;
}
