//! Sandboxes in real virtual machines, through the engine and through the `sandling` command.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop here")]

mod carry;
mod cli;
mod contexts;
mod durable;
mod files;
mod fork;
mod harness;
mod hostile;
mod identity;
mod kept;
mod killed;
mod lifecycle;
mod many_forks;
#[path = "../../../network/tests/suite/namespace.rs"]
mod namespace;
mod nested;
mod network;
mod recovery;
mod remote;
mod rewind;
mod runs;
mod served;
#[path = "../../../network/tests/suite/servers.rs"]
#[allow(dead_code, reason = "the gateway's own tests use the rest of it")]
mod servers;
mod standbys;
mod torn;
mod volume;
