//! The `sandling` command with real virtual machines.
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod cli;
#[path = "../../../fleet/tests/contract/etcd_server.rs"]
mod etcd_server;
mod fleet;
mod fleet_builds;
mod fleet_e2b;
mod fleet_failover;
mod fleet_moves;
mod fleet_pulls;
mod fleet_rebuild;
mod fleet_store;
mod fleet_versions;
mod fleet_volumes;
mod fleet_workspaces;
#[path = "../../../engine/tests/vm/harness.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod harness;
mod killed_run;
#[path = "../../../network/tests/suite/namespace.rs"]
mod namespace;
mod nested;
mod remote;
#[path = "../../../fleet/tests/contract/s3_server.rs"]
mod s3_server;
mod served;
#[path = "../../../network/tests/suite/servers.rs"]
#[allow(dead_code, reason = "the gateway's tests use the rest")]
mod servers;
#[path = "../../../engine/tests/vm/network/world.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod world;

/// The program under test.
pub const SANDLING: &str = env!("CARGO_BIN_EXE_sandling");
