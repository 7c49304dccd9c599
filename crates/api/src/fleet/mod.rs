//! A server as a node of a fleet: any node answers any request.
//!
//! The id of a sandbox carries the tag of the node that created it, and nodes know which sandboxes have moved. A node passes a
//! request about another node's sandbox on to that node, over mutual TLS, and returns the response. No ledger is read for that. Creates go to the node that
//! offers the most, and lists show the sandboxes of all nodes. A name says nothing about the node, so the nodes are asked for it.
//!
//! In a fleet with a store, snapshots are uploaded in the background (`uploads.rs`), and any node can bring one here
//! (`bring.rs`).

mod accounts;
mod audit;
mod bring;
mod builds;
mod chosen;
mod connections;
mod copy_records;
mod durable;
mod engine;
mod failover;
mod find;
mod follow_engine;
mod forward;
mod health;
mod here;
mod join;
mod known_nodes;
mod list;
mod member;
mod moves;
mod named;
mod place;
mod protocol;
mod pulls;
mod quotas;
mod rebuild;
mod route;
mod settings;
mod stored;
mod sweep;
mod templates;
mod theirs;
mod uploads;
mod volumes;
mod workspace_settings;

pub use durable::StoreHealth;
pub(crate) use durable::Waited;
pub use engine::address_of_own_engine;
pub use health::PeerHealth;
pub use join::JoinToken;
pub use member::{Fleet, NodeChoices};
pub use pulls::PullTemplates;
pub(crate) use pulls::Replace;
pub use rebuild::{NodeState, Rebuild};
pub use settings::{FleetError, FleetSettings};
