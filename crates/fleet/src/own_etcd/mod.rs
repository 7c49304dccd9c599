//! The etcd of a fleet that was not given one: a child of the first node's server.
//!
//! The server executes its own program with [`ARGUMENT`]. That process confines itself and then becomes etcd.
//!
//! Confined: etcd has an empty environment, no capabilities and no way to get any, and it ends with the server. Landlock
//! lets it write only in its directory, read only system libraries and what name resolution needs, bind and connect only
//! its own TCP port, and signal no other process. A kernel without Landlock enforces none of that. Clients must show a
//! certificate of the fleet, and Raft's port is a socket in the directory, so the network cannot reach it.
//!
//! Not confined: etcd keeps the server's user and namespaces, has no system call filter, and has no limits of memory or
//! CPU. UDP is open.

mod confine;
mod supervise;

pub use confine::{ARGUMENT, main};
pub use supervise::{EtcdSettings, OwnEtcd, QUOTA, program};
