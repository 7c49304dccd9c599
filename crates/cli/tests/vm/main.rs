//! The `sandling` command with real virtual machines.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop here")]

mod cli;
#[path = "../../../engine/tests/vm/harness.rs"]
#[allow(dead_code, reason = "the engine's own tests use the rest of it")]
mod harness;
mod killed_run;
#[path = "../../../network/tests/suite/namespace.rs"]
mod namespace;
mod nested;
mod remote;
mod served;
#[path = "../../../network/tests/suite/servers.rs"]
#[allow(dead_code, reason = "the gateway's own tests use the rest of it")]
mod servers;
#[path = "../../../engine/tests/vm/network/world.rs"]
#[allow(dead_code, reason = "the engine's own tests use the rest of it")]
mod world;

/// The program under test.
pub const SANDLING: &str = env!("CARGO_BIN_EXE_sandling");
