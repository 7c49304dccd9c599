//! Sandboxes in real virtual machines, through the engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop here")]

mod bakes;
mod boot;
mod carry;
mod contexts;
mod durable;
mod files;
mod fork;
mod harness;
mod hostile;
mod identity;
mod killed;
mod lifecycle;
mod many_forks;
mod moves;
#[path = "../../../network/tests/suite/namespace.rs"]
mod namespace;
mod network;
mod process_cache;
mod recovery;
mod rewind;
mod runs;
#[path = "../../../network/tests/suite/servers.rs"]
#[allow(dead_code, reason = "the gateway's own tests use the rest of it")]
mod servers;
mod standbys;
mod torn;
mod uploads;
mod volume;
